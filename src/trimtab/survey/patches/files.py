"""Files that are all written or not at all: beside their places first, and then put there one by one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from trimtab.errors import TrimtabError


def write(files: Mapping[Path, str]) -> None:
    """Write them; whatever goes wrong before the last byte is down leaves every file as it was."""
    beside: dict[Path, str] = {}
    real = {path.resolve(): text for path, text in files.items()}  # a link stays one
    try:
        for path, text in real.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(
                "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8", newline=""
            ) as file:
                beside[path] = file.name
                file.write(text)
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


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now
