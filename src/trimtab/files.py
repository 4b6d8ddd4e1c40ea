"""Files that are all written or not at all: beside their places first, and then put there one by one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from trimtab.errors import TrimtabError


def write(files: Mapping[Path, str | bytes]) -> None:
    """Write them; whatever goes wrong before the last byte is down leaves every file as it was."""
    beside: dict[Path, str] = {}
    real = {path.resolve(): content for path, content in files.items()}  # a link stays one
    try:
        for path, content in real.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
                beside[path] = file.name
                file.write(content.encode() if isinstance(content, str) else content)
            Path(file.name).chmod(path.stat().st_mode if path.exists() else 0o666 & ~_umask())
        for path in real:
            Path(beside[path]).replace(path)
            del beside[path]
    except OSError as error:
        raise TrimtabError(f"{error.filename or 'file'}: {error.strerror}") from error
    finally:
        for name in beside.values():
            with suppress(OSError):
                Path(name).unlink()


def see_writable(path: Path) -> None:
    """Complain of a file that could not be written now, before the work is done that is to go into it."""
    folder = path.resolve().parent
    if path.is_dir():
        raise TrimtabError(f"{path}: is a folder; name a file")
    if not folder.is_dir():
        raise TrimtabError(f"{path}: there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise TrimtabError(f"{path}: {folder} cannot be written to")


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now
