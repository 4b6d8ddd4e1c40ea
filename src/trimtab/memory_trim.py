"""Return unused memory to the system, which the process would otherwise keep after a large read or the end of
compilation.

The C library keeps freed memory in one heap per thread, and raises the size from which it asks the system for memory.
With fixed thresholds, an operator of 50,000 pods uses a tenth less memory. LLVM is needed once, to load the
strategies' kernels from their cache, and has touched 80 MiB of its pages by then. On systems with other libraries,
nothing happens.
"""

from __future__ import annotations

import ctypes
import gc
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_TRIM_BYTES = 128 * 1024
"""The size in bytes from which an allocation gets its own mapping, which is returned to the system when it is
freed."""

_MADV_DONTNEED = 4
_MAPS = Path("/proc/self/smaps")
_LLVM = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) r-[x-]p .*libllvmlite\S*$")
_MAPPING_HEADER = re.compile(r"^[0-9a-f]+-[0-9a-f]+ ")
_LLVM_MAPPINGS: list[tuple[int, int]] = []
"""The mappings of LLVM, searched once: listing all mappings of a process is slow, and a library stays where it is."""


def limit_allocator_arenas() -> None:
    """Set the allocator's thresholds; call it once, before any thread starts."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    for option, value in ((_TRIM_THRESHOLD, _TRIM_BYTES), (_MMAP_THRESHOLD, _TRIM_BYTES), (_ARENA_MAX, 2)):
        set_option(option, value)


@contextmanager
def pause_collector() -> Iterator[None]:
    """Import without garbage collection, which took a quarter of the start-up time; what was imported is never scanned."""
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def release_compiler_memory() -> None:
    """Drop the pages of the compiler's library; the next call of the compiler reads them again from the page
    cache.
    """
    if "llvmlite" not in sys.modules:
        return
    try:
        advise = ctypes.CDLL(None).madvise
        if not _LLVM_MAPPINGS:
            _LLVM_MAPPINGS.extend(_clean_mappings(_MAPS.read_text().splitlines()))
    except (OSError, AttributeError):
        return
    for begin, end in _LLVM_MAPPINGS:
        advise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_DONTNEED)


def _clean_mappings(maps: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Find the unmodified mappings of the library: the content of modified ones would be lost, not read again."""
    place: tuple[int, int] | None = None
    for line in maps:
        if _MAPPING_HEADER.match(line):
            found = _LLVM.match(line)
            place = (int(found[1], 16), int(found[2], 16)) if found else None
        elif place and line.startswith("Anonymous:") and line.split()[1] == "0":
            yield place
