"""Find and open the files of a recording: single files, folders, compressed files and archives.

A part is opened as a stream and never unpacked into memory as a whole. Compression is detected by the first
bytes rather than the name, because some archives contain plain parquet named `.parquet.gz`.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import IO, BinaryIO, Literal, cast

from trimtab.errors import TrimtabError

FILE_KINDS = ("csv", "json", "parquet")
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip")
GZIP = b"\x1f\x8b"

FileKind = Literal["csv", "json", "parquet"]
ByteCounter = Callable[[int], None]
"""A callback that receives the bytes of each read from disk, for progress within a compressed stream."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """One table of rows on disk."""

    path: Path
    kind: FileKind
    member: str = ""
    """The name inside an archive; empty for a plain file."""

    def __str__(self) -> str:
        return f"{self.path}:{self.member}" if self.member else str(self.path)

    @property
    def stem(self) -> str:
        """Return the file name without folder and extensions."""
        return PurePath(self.member or self.path).name.partition(".")[0]

    @contextmanager
    def open(self, on_read: ByteCounter | None = None) -> Iterator[IO[bytes]]:
        with ExitStack() as stack:
            raw = stack.enter_context(self.path.open("rb"))
            stream: IO[bytes] = io.BufferedReader(_CountingReader(raw, on_read)) if on_read else raw
            if self.member:
                stream = stack.enter_context(self._open_member(stream, stack))
            yield stack.enter_context(_decompress(stream))

    def _open_member(self, stream: IO[bytes], stack: ExitStack) -> IO[bytes]:
        if self.path.suffix == ".zip":
            return stack.enter_context(zipfile.ZipFile(stream)).open(self.member)
        archive = stack.enter_context(tarfile.TarFile.open(fileobj=stream))
        return cast("IO[bytes]", archive.extractfile(self.member))


class _CountingReader(io.RawIOBase):
    """A file that reports how many bytes are read from it."""

    def __init__(self, raw: BinaryIO | IO[bytes], count: ByteCounter) -> None:
        self._raw, self._count = raw, count

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self._raw.read(len(buffer))
        buffer[: len(data)] = data
        self._count(len(data))
        return len(data)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._raw.seek(offset, whence)


def _decompress(stream: IO[bytes]) -> IO[bytes]:
    compressed = stream.read(2) == GZIP
    stream.seek(0)
    return cast("IO[bytes]", gzip.open(stream)) if compressed else stream


def find_parts(path: Path) -> list[FilePart]:
    """Return all tables under a path, sorted by name; raise if there are none."""
    try:
        path.stat()
    except FileNotFoundError:
        raise TrimtabError(f"{path}: the file does not exist; check the path") from None
    except OSError as error:  # for example a folder without read permission
        raise TrimtabError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
        found = [part for file in files for part in find_parts_in_file(file)]
    else:
        found = find_parts_in_file(path)
    if not found:
        raise TrimtabError(f"{path}: no .parquet, .csv or .json file, compressed or in an archive, was found")
    return found


def find_parts_in_file(file: Path) -> list[FilePart]:
    """Return the tables in a file: one, those of a zip, or the first of a tar; empty for other files."""
    if not file.name.endswith(ARCHIVES):
        kind = _detect_kind(file.name)
        return [FilePart(file, kind)] if kind else []
    try:
        return [FilePart(file, kind, name) for name in _list_members(file) if (kind := _detect_kind(name))]
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise TrimtabError(f"{file}: the archive cannot be read: {error}") from None


def _list_members(file: Path) -> list[str]:
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as archive:
            return sorted(archive.namelist())
    with tarfile.open(file) as archive:
        # Only the first member: finding the next one would decompress the whole archive.
        return [next((member.name for member in archive if member.isfile()), "")]


def _detect_kind(name: str) -> FileKind | None:
    bare = name.removesuffix(".gz")
    return next((cast("FileKind", kind) for kind in FILE_KINDS if bare.endswith(f".{kind}")), None)
