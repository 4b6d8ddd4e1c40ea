"""Files that are all written or not at all: beside their places first, and then put there one by one.

What is no file, such as /dev/stdout or a pipe, is written to as it is: nothing may take its place.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from trimtab.errors import TrimtabError


def write_atomically(files: Mapping[Path, str | bytes]) -> None:
    """Write them; whatever goes wrong while they are written leaves every file as it was."""
    path = Path()
    try:
        with ExitStack() as places:
            for path, content in files.items():
                path.resolve().parent.mkdir(parents=True, exist_ok=True)
                place = places.enter_context(replace_atomically(path))
                place.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise TrimtabError(f"{path}: {error.strerror}") from error


@contextmanager
def replace_atomically(path: Path) -> Iterator[Path]:
    """A file beside the one of this name, to be written to; at the end it is on the disk and takes the other's place.

    What goes wrong until then leaves the other as it was, and nothing beside it.
    """
    if _is_special_file(path):
        yield path
        return
    real = path.resolve()  # a link stays one
    handle, name = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name}.")
    place = Path(name)
    try:
        os.close(handle)
        yield place
        fsync_path(place)
        place.chmod(real.stat().st_mode if real.exists() else 0o666 & ~_read_umask())
        place.replace(real)
    except BaseException:
        with suppress(OSError):
            place.unlink()
        raise


def check_writable(path: Path) -> None:
    """Complain of a file that could not be written now, before the work is done that is to go into it."""
    try:
        if _is_special_file(path):
            return
        folder = path.resolve().parent
        if path.is_dir():
            raise TrimtabError(f"{path}: is a folder; name a file")
        if not folder.is_dir():
            raise TrimtabError(f"{path}: there is no folder {folder}")
        if not os.access(folder, os.W_OK):
            raise TrimtabError(f"{path}: {folder} cannot be written to")
    except OSError as error:  # it may not even be looked at
        raise TrimtabError(f"{path}: {error.strerror}") from error


def fsync_path(path: Path) -> None:
    """Have what is in a file, or which names a folder has, outlive a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_special_file(path: Path) -> bool:
    """A device, a pipe or a socket."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _read_umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now
