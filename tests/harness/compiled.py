"""Keep numba's compiled functions outside the checkout, so that a clean checkout of the same sources reuses them.

numba keeps it beside each module and knows it by that module's content, but not by that of others whose functions
went into it. So the cache is valid only for the content of all modules together.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import trimtab
from harness.build import cache, locked

PACKAGE = Path(trimtab.__file__).parent


def restore() -> None:
    """Lay beside the modules what was kept of the same ones, and is not there."""
    with suppress(FileNotFoundError):  # another checkout has just kept its own
        shutil.copytree(_place(), PACKAGE, dirs_exist_ok=True, copy_function=_copy_if_missing)


def _copy_if_missing(source: str, target: str) -> None:
    if not Path(target).exists():  # else a process may be reading it
        shutil.copy2(source, target)


def keep() -> None:
    """Keep what is beside the modules now, and nothing of other versions of them."""
    with locked("numba"), tempfile.TemporaryDirectory(dir=cache(), prefix=".numba-") as scratch:
        kept = Path(scratch) / "kept"
        for file in _compiled():
            place = kept / file.relative_to(PACKAGE)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, place)
        for outdated in cache().glob("numba-*"):
            shutil.rmtree(outdated)
        if kept.is_dir():
            kept.rename(_place())


def _compiled() -> Iterator[Path]:
    """List numba's index and data files."""
    yield from PACKAGE.rglob("__pycache__/*.nb[ci]")


def _place() -> Path:
    digest = hashlib.sha256()
    for module in sorted(PACKAGE.rglob("*.py")):
        text = module.read_bytes()
        if b"numba" in text or b"trimtab.kernel" in text:
            digest.update(str(module.relative_to(PACKAGE)).encode() + text)
    return cache() / f"numba-{digest.hexdigest()[:12]}"
