"""Serialize per-container state: bit for bit, the same bytes for the same state, and no code in them.

A snapshot names its strategy, settings and number of containers, so that it cannot be read as something else.
The arrays follow as they lie in memory, compressed piece by piece, because those of a large cluster take a
hundred megabytes and a second copy would be the peak of the process; then a checksum. Snapshots are not
converted between versions here: a strategy that changed its arrays starts from nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from trimtab.sizing.arrays import Array

if TYPE_CHECKING:
    from trimtab.sizing.state.array_state import ArrayState

MAGIC = b"trimtab2"
LENGTH_BYTES, CHECKSUM_BYTES = 8, 4
COMPRESSION_LEVEL = 1
"""The compression level: most of the possible compression at a fraction of the time."""


class ArrayEntry(msgspec.Struct, frozen=True, array_like=True):
    """One array of a snapshot."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class SnapshotHeader(msgspec.Struct, frozen=True):
    """The description of the bytes that follow it."""

    strategy: str
    containers: int
    settings: dict[str, Any]
    parts: tuple[ArrayEntry, ...]


def pack(state: ArrayState[Any], arrays: Mapping[str, Array]) -> bytes:
    """Return the arrays of a strategy as a snapshot."""
    whole = {name: _to_little_endian(array) for name, array in arrays.items()}
    parts = tuple(ArrayEntry(name, array.dtype.str, array.shape) for name, array in whole.items())
    header = msgspec.json.encode(
        SnapshotHeader(
            strategy=state.name,
            containers=state.containers,
            settings=_dump_settings(state),
            parts=parts,
        )
    )
    squeeze = zlib.compressobj(COMPRESSION_LEVEL)
    pieces = [MAGIC, len(header).to_bytes(LENGTH_BYTES, "little"), header]
    pieces += [squeeze.compress(array.data.cast("B")) for array in whole.values() if array.size]
    pieces.append(squeeze.flush())
    check = 0
    for piece in pieces:
        check = zlib.crc32(piece, check)
    return b"".join([*pieces, check.to_bytes(CHECKSUM_BYTES, "little")])


def unpack(known: ArrayState[Any], state: bytes, like: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays of a snapshot of such a strategy.

    They must have the names, types and shapes of `like`; a pool may be longer or shorter.
    """
    header, body = _read_header(state)
    _check_header(header, known)
    content = _CompressedReader(body)
    arrays = {}
    for part in header.parts:
        if part.name not in like:
            raise ValueError(f"state: array {part.name!r} is not one that {known.name} keeps")
        arrays[part.name] = _read_array(part, content)
        _check_shape(part, like[part.name], any_length=is_pool(part.name))
    missing = like.keys() - arrays.keys()
    if missing:
        raise ValueError(f"state: array {min(missing)!r} is missing")
    if content.read(1):
        raise ValueError("state: there are bytes too many")
    return arrays


class _CompressedReader:
    """Reads compressed bytes from the beginning, piece by piece."""

    def __init__(self, body: memoryview) -> None:
        self._remaining: bytes | memoryview = body
        self._decompressor = zlib.decompressobj()

    def read(self, size: int) -> bytearray:
        """Return this many bytes, or what is left."""
        found = bytearray()
        while len(found) < size and not self._decompressor.eof:
            try:
                piece = self._decompressor.decompress(self._remaining, size - len(found))
            except zlib.error as error:
                raise ValueError(f"state: the arrays of the snapshot cannot be read: {error}") from None
            self._remaining = self._decompressor.unconsumed_tail
            if not piece and not self._remaining:
                break
            found += piece
        return found


def is_pool(name: str) -> bool:
    """Return whether an array is a pool, whose items are shared out to containers and whose length varies."""
    return name.rpartition(".")[2] == "pool"


def _to_little_endian(array: Array) -> Array:
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))


def _dump_settings(known: ArrayState[Any]) -> dict[str, Any]:
    plain: dict[str, Any] = known.settings.model_dump(mode="json")
    return plain


def _read_header(state: bytes) -> tuple[SnapshotHeader, memoryview]:
    """Return the header and the bytes of the arrays, after checking that they are complete and unchanged."""
    view = memoryview(state)
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise ValueError("state: these bytes are not a snapshot of a strategy")
    start = len(MAGIC) + LENGTH_BYTES
    if len(view) < start + CHECKSUM_BYTES:
        raise ValueError("state: the snapshot is cut short")
    if zlib.crc32(view[:-CHECKSUM_BYTES]) != int.from_bytes(view[-CHECKSUM_BYTES:], "little"):
        raise ValueError("state: the snapshot is damaged or cut short; its checksum does not match")
    end = start + int.from_bytes(view[len(MAGIC) : start], "little")
    try:
        return msgspec.json.decode(view[start:end], type=SnapshotHeader), view[end:-CHECKSUM_BYTES]
    except msgspec.MsgspecError as error:
        raise ValueError(f"state: the header of the snapshot cannot be read: {error}") from None


def _check_header(header: SnapshotHeader, known: ArrayState[Any]) -> None:
    if header.strategy != known.name:
        raise ValueError(f"state: it is of strategy {header.strategy!r}, not of {known.name!r}")
    if header.containers != known.containers:
        raise ValueError(f"state: it is of {header.containers} containers, not of {known.containers}")
    ours = _dump_settings(known)
    for name in sorted(ours.keys() | header.settings.keys()):
        if ours.get(name) != header.settings.get(name):
            theirs = header.settings.get(name)
            raise ValueError(f"state: it was learned with {name} = {theirs!r}, not {ours.get(name)!r}")


def _read_array(part: ArrayEntry, content: _CompressedReader) -> Array:
    try:
        dtype = np.dtype(part.dtype)
    except TypeError:
        raise ValueError(f"state: array {part.name!r} has no known type: {part.dtype!r}") from None
    if dtype.hasobject or min(part.shape, default=0) < 0:
        raise ValueError(f"state: array {part.name!r} has no known shape or type")
    size = int(np.prod(part.shape, dtype=np.int64)) * dtype.itemsize
    found = content.read(size)
    if len(found) < size:
        raise ValueError(f"state: array {part.name!r} is cut short")
    return np.frombuffer(found, dtype).reshape(part.shape).astype(dtype.newbyteorder("="), copy=False)


def _check_shape(part: ArrayEntry, like: Array, *, any_length: bool) -> None:
    fixed = 1 if any_length else 0
    if np.dtype(part.dtype) != like.dtype.newbyteorder("<") or part.shape[fixed:] != like.shape[fixed:]:
        raise ValueError(
            f"state: array {part.name!r} is {part.dtype} {part.shape}, not {like.dtype.str} {like.shape}"
        )
