"""Use compiled kernels that an image ships, so that a fresh pod compiles nothing.

numba keeps compiled functions in `NUMBA_CACHE_DIR`, which it must be able to write to, and an image's file system is
read-only. So the image has them in another folder, `NUMBA_SHIPPED_CACHE_DIR`, and each process links them into its
cache. Compiling the kernels takes ten times the CPU of loading them, and twice the memory of the operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

CACHE, SHIPPED = "NUMBA_CACHE_DIR", "NUMBA_SHIPPED_CACHE_DIR"


def link_shipped_kernels(environ: Mapping[str, str]) -> bool:
    """Link the shipped kernels into the cache before they are first called; return whether there are any."""
    if not (environ.get(CACHE) and environ.get(SHIPPED)):
        return False
    cache, shipped = Path(environ[CACHE]), Path(environ[SHIPPED])
    found = [path for path in shipped.rglob("*") if path.is_file()]
    # A cache that cannot be written costs time only: the kernels are compiled for this process.
    with suppress(OSError):
        for path in found:
            link = cache / path.relative_to(shipped)
            link.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                link.symlink_to(path)
    return bool(found)


def unlink_shipped_kernels(environ: Mapping[str, str]) -> bool:
    """Remove the links to shipped kernels, so that the kernels are compiled; return whether there were any."""
    if not (environ.get(CACHE) and environ.get(SHIPPED)):
        return False
    shipped = Path(environ[SHIPPED])
    links = [
        path
        for path in Path(environ[CACHE]).rglob("*")
        if path.is_symlink() and path.readlink().is_relative_to(shipped)
    ]
    for link in links:
        link.unlink(missing_ok=True)
    return bool(links)
