"""Gives memory back: what a big read took for a moment, or a library that has done its work, would else stay for good.

The C library keeps freed memory in a heap for each thread, and takes larger and larger pieces from there. Told not to,
an operator of 50,000 pods holds a tenth less. LLVM is needed once, to bring the strategies' kernels from their cache, and
80 MiB of it have been looked at by then. Where the libraries or the system are others, nothing happens.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_TRIM_BYTES = 128 * 1024
"""Bytes from which on a piece is taken from the system, and given back to it, by itself."""

_MADV_DONTNEED = 4
_MAPS = Path("/proc/self/smaps")
_LLVM = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) r-[x-]p .*libllvmlite\S*$")
_MAPPING_HEADER = re.compile(r"^[0-9a-f]+-[0-9a-f]+ ")
_LLVM_MAPPINGS: list[tuple[int, int]] = []
"""Looked for once: to list all of a process's memory takes the kernel long, and a library stays where it is."""


def limit_allocator_arenas() -> None:
    """To be called once, before there are threads."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    for option, value in ((_TRIM_THRESHOLD, _TRIM_BYTES), (_MMAP_THRESHOLD, _TRIM_BYTES), (_ARENA_MAX, 2)):
        set_option(option, value)


def release_compiler_memory() -> None:
    """Hold none of its pages any more; whoever calls it again reads them again from the system's own cache."""
    try:
        advise = ctypes.CDLL(None).madvise
        if not _LLVM_MAPPINGS:
            _LLVM_MAPPINGS.extend(_clean_mappings(_MAPS.read_text().splitlines()))
    except (OSError, AttributeError):
        return
    for begin, end in _LLVM_MAPPINGS:
        advise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_DONTNEED)


def _clean_mappings(maps: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Where its file is mapped as it is: what was written to when it was loaded would be lost, not read again."""
    place: tuple[int, int] | None = None
    for line in maps:
        if _MAPPING_HEADER.match(line):
            found = _LLVM.match(line)
            place = (int(found[1], 16), int(found[2], 16)) if found else None
        elif place and line.startswith("Anonymous:") and line.split()[1] == "0":
            yield place
