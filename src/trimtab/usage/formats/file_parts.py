"""The files of a recording, wherever they lie: alone, in folders, compressed, in an archive.

A part is opened as a stream and never unpacked whole into memory. What is compressed is told by its first bytes, not
by its name: some archives call plain parquet `.parquet.gz`.
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
"""Told of each read from the disk, in bytes: how far a compressed stream has come."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """One table of rows on the disk."""

    path: Path
    kind: FileKind
    member: str = ""
    """Its name inside an archive."""

    def __str__(self) -> str:
        return f"{self.path}:{self.member}" if self.member else str(self.path)

    @property
    def stem(self) -> str:
        """Its name without folder and endings."""
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
    """A file that tells how much of it was read."""

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
    """All tables under a path, by name; a clear refusal where there are none."""
    try:
        path.stat()
    except FileNotFoundError:
        raise TrimtabError(f"{path}: there is no such file") from None
    except OSError as error:  # as in a folder that is not ours to look into
        raise TrimtabError(f"{path}: cannot be read: {error.strerror}") from None
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
        found = [part for file in files for part in find_parts_in_file(file)]
    else:
        found = find_parts_in_file(path)
    if not found:
        raise TrimtabError(
            f"{path}: is no .parquet, .csv or .json, compressed or not, and no archive of them"
        )
    return found


def find_parts_in_file(file: Path) -> list[FilePart]:
    """The tables in a file: one, or those of a zip, or the first of a tar; none where it is something else."""
    if not file.name.endswith(ARCHIVES):
        kind = _detect_kind(file.name)
        return [FilePart(file, kind)] if kind else []
    try:
        return [FilePart(file, kind, name) for name in _list_members(file) if (kind := _detect_kind(name))]
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise TrimtabError(f"{file}: is not an archive that can be read: {error}") from None


def _list_members(file: Path) -> list[str]:
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as archive:
            return sorted(archive.namelist())
    with tarfile.open(file) as archive:
        # The first alone: to find the next, all of it would have to be unpacked.
        return [next((member.name for member in archive if member.isfile()), "")]


def _detect_kind(name: str) -> FileKind | None:
    bare = name.removesuffix(".gz")
    return next((cast("FileKind", kind) for kind in FILE_KINDS if bare.endswith(f".{kind}")), None)
