"""Keep JAX's compilations outside the checkout: compiling takes longer than the training in tests.

JAX knows each by its content, but not by the processor, which must be of the same kind; and what it writes may be seen
by half, so it writes to a private folder, out of which whole files go to the others.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

from harness.build import cache

SETTINGS: dict[str, bool | float | str | None] = {
    "jax_disable_most_optimizations": True,  # what is learned in tests is tiny
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
    "jax_persistent_cache_enable_xla_caches": "none",  # of which the folder would be a part of the name
}


@contextmanager
def kept_compilations() -> Iterator[None]:
    """Compile quickly, and nothing that was compiled before; so do processes that are started meanwhile."""
    place = _place()
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache(), prefix=".xla-") as scratch:
        for known in place.iterdir():
            shutil.copy2(known, scratch)
        _set(SETTINGS | {"jax_compilation_cache_dir": scratch})
        try:
            yield
        finally:
            _set({"jax_compilation_cache_dir": None})
        for file in Path(scratch).iterdir():
            if not (place / file.name).exists():
                file.rename(place / file.name)


def _set(settings: dict[str, bool | float | str | None]) -> None:
    for name, value in settings.items():
        if value is None:
            os.environ.pop(name.upper(), None)
        else:
            os.environ[name.upper()] = str(value)
        jax.config.update(name, value)  # type: ignore[no-untyped-call]  # JAX's own has no types
    compilation_cache.reset_cache()


def _place() -> Path:
    found = re.search(r"^(flags|Features)\s*:.*$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    processor = found[0] if found else ""
    return cache() / f"xla-{hashlib.sha256(processor.encode()).hexdigest()[:12]}"
