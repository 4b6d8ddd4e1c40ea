"""Write files atomically: first to temporary files beside them, which then replace them one by one.

Special files such as /dev/stdout or a pipe are written to directly, because they cannot be replaced.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PureWindowsPath

from trimtab.errors import TrimtabError


def write_atomically(files: Mapping[Path, str | bytes]) -> None:
    """Write all files; an error while they are written leaves every file unchanged."""
    path = Path()
    try:
        with ExitStack() as places:
            for path, content in files.items():
                path.resolve().parent.mkdir(parents=True, exist_ok=True)
                place = places.enter_context(replace_atomically(path))
                place.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise TrimtabError(f"{path}: {error.strerror}") from error


def check_file_name(name: str) -> str:
    """Return a file name that is made of names of objects; raise unless it stays in its folder on every system."""
    if name != PureWindowsPath(name).name or "/" in name or "\0" in name or name in {"", ".", ".."}:
        raise TrimtabError(
            f"file name {name!r}: the name of an object leads out of the folder, so no file is written; rename the object"
        )
    return name


@contextmanager
def replace_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside the named one; at the end it is synced to disk and replaces the named file.

    After an error the named file is unchanged and the temporary file is removed.
    """
    if _is_special_file(path):
        yield path
        return
    real = path.resolve()  # keep a symbolic link
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
    """Raise an error now if a file cannot be written later, before the work that produces its content."""
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
    except OSError as error:  # the path may not even be inspected
        raise TrimtabError(f"{path}: {error.strerror}") from error


def fsync_path(path: Path) -> None:
    """Make the content of a file, or the entries of a folder, survive a power loss."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_special_file(path: Path) -> bool:
    """Return True for a device, a pipe or a socket."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _read_umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now
