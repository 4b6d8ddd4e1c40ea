"""Arrays of many containers with one row each: which samples count, and state that a strategy learned or a tracker observed.

A sample that no machine can use is a measurement error, and no strategy learns from it. NaN (no sample), the infinities
and negative numbers fail the same test: `0 <= value <= most`.

State in arrays survives a restart (`pack`, `unpack`) and changes of its containers (`reindex`) without any code of its
own. **Serialization** is bit for bit: the same bytes for the same state, and no code in them. A snapshot names its
strategy, settings and number of containers, so that it cannot be read as something else. The arrays follow as they lie
in memory, compressed piece by piece, because those of a large cluster take a hundred megabytes and a second copy would
be the peak of the process; then a checksum. Snapshots are not converted between versions here: a strategy that changed
its arrays starts from nothing.

**Reindexing**: a strategy is created for a fixed number of containers. When they change, a new one is created that has
the old state of each container that stays, and none for those that are new. The state of the fleet as a whole goes
along. A container that left releases its share of a pool. The axis of an array that stands for the containers is found
by comparing a strategy of one container with one of two.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from trimtab.plugins import Settings

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

MAX_PLAUSIBLE_CPU = 1e5
"""The most plausible CPU usage in cores: ten times the largest machine."""

MAX_PLAUSIBLE_MEMORY = 1e14
"""The most plausible memory usage in bytes: 100 TB, as in the VPA recommender."""


def scatter_memory(rows: int, containers: Indices, memory: Floats) -> Floats:
    """Return the memory of some containers as a sample of all: NaN for the others, the highest if one is
    named twice.
    """
    values = np.full(rows, np.nan)
    believed = (memory >= 0) & (memory <= MAX_PLAUSIBLE_MEMORY)
    np.fmax.at(values, containers[believed], memory[believed])
    return values


def deduplicate_kills(rows: int, containers: Indices, memory: Floats) -> tuple[Indices, Floats]:
    """Return the containers that were killed, each once, with the most memory of its replicas."""
    had = scatter_memory(rows, containers, memory)
    killed = np.flatnonzero(~np.isnan(had))
    return killed, had[killed]


OOM_NEED_SHARE = 0.5
"""The estimated need of an OOM-killed container, between what it had and what it gets."""


def grow_after_kills(
    memory: Floats, factor: float, least: float = 0.0, *, need_share: float = OOM_NEED_SHARE
) -> tuple[Floats, Floats]:
    """Return what OOM-killed containers get, `least` bytes more at least, and the estimate of what they needed."""
    grown = np.maximum(memory * factor, memory + least)
    return grown, memory + need_share * (grown - memory)


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


def unpack(target: ArrayState[Any], state: bytes, like: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays of a snapshot of such a strategy.

    They must have the names, types and shapes of `like`; a pool may be longer or shorter.
    """
    header, body = _read_header(state)
    _check_header(header, target)
    content = _CompressedReader(body)
    arrays = {}
    for part in header.parts:
        if part.name in target.former_arrays:
            _read_array(part, content)
            continue
        if part.name not in like:
            raise ValueError(f"state: array {part.name!r} is not one that {target.name} keeps")
        arrays[part.name] = _read_array(part, content)
        _check_shape(part, like[part.name], any_length=is_pool(part.name))
    missing = like.keys() - arrays.keys() - target.added_arrays
    if missing:
        raise ValueError(f"state: array {min(missing)!r} is missing")
    if content.read(1):
        raise ValueError("state: the snapshot is longer than its arrays")
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
                # Bounded by the size that is asked for: a crafted snapshot could decompress to gigabytes.
                piece = self._decompressor.decompress(self._remaining, size - len(found))
            except zlib.error as error:
                raise ValueError(f"state: the arrays of the snapshot cannot be read: {error}") from None
            self._remaining = self._decompressor.unconsumed_tail
            # The input ended early, and no further call would return more.
            if not piece and not self._remaining:
                break
            found += piece
        return found


def is_pool(name: str) -> bool:
    """Return whether an array is a pool, whose items are shared out to containers and whose length varies."""
    return name.rpartition(".")[2] == "pool"


def _to_little_endian(array: Array) -> Array:
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))


def _dump_settings(target: ArrayState[Any]) -> dict[str, Any]:
    plain: dict[str, Any] = target.settings.model_dump(mode="json")
    return plain


def _read_header(state: bytes) -> tuple[SnapshotHeader, memoryview]:
    """Return the header and the bytes of the arrays, after checking that they are complete and unchanged."""
    view = memoryview(state)
    if bytes(view[: len(MAGIC)]) != MAGIC:
        raise ValueError("state: these bytes are not a snapshot of a strategy")
    start = len(MAGIC) + LENGTH_BYTES
    if len(view) < start + CHECKSUM_BYTES:
        raise ValueError("state: the snapshot is cut short")
    # Before anything is decoded: a flipped bit in an array would go unnoticed and change sizes.
    if zlib.crc32(view[:-CHECKSUM_BYTES]) != int.from_bytes(view[-CHECKSUM_BYTES:], "little"):
        raise ValueError("state: the snapshot is damaged or cut short; its checksum does not match")
    end = start + int.from_bytes(view[len(MAGIC) : start], "little")
    try:
        return msgspec.json.decode(view[start:end], type=SnapshotHeader), view[end:-CHECKSUM_BYTES]
    except msgspec.MsgspecError as error:
        raise ValueError(f"state: the header of the snapshot cannot be read: {error}") from None


def _check_header(header: SnapshotHeader, target: ArrayState[Any]) -> None:
    if header.strategy != target.name:
        raise ValueError(f"state: it is of strategy {header.strategy!r}, not of {target.name!r}")
    if header.containers != target.containers:
        raise ValueError(f"state: it is of {header.containers} containers, not of {target.containers}")
    # State that was learned with another half-life or other buckets would be misread without an error.
    ours = _dump_settings(target)
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


S = TypeVar("S", bound=Settings)


class ArrayState(ABC, Generic[S]):
    """Per-container state that is built from a number of containers and settings, and nothing else."""

    name: ClassVar[str]
    """The name that users know."""
    former_arrays: ClassVar[frozenset[str]] = frozenset()
    """The arrays that earlier versions stored and that are ignored."""

    added_arrays: ClassVar[frozenset[str]] = frozenset()
    """The arrays that earlier versions did not store."""

    def __init__(self, containers: int, settings: S) -> None:
        self.containers = containers
        self.settings = settings

    @abstractmethod
    def arrays(self) -> Mapping[str, Array]:
        """Return the whole state by name.

        An array with a share of each container has one row (or column) per container. An array named `pool`
        may have any length: its items belong to the containers whose `pages` beside it name them.
        """

    @abstractmethod
    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        """Load the arrays that `arrays` returned; raise `ValueError` for indices that a compiled loop would
        follow out of bounds.
        """

    def state(self) -> bytes:
        """Return the whole state as bytes: no code in it, and the same bytes for the same state."""
        return pack(self, self.arrays())

    def restore(self, state: bytes) -> None:
        """Restore the bytes that `state` returned from an object of the same name, settings and containers.

        From then on every answer is the same to the bit. Other bytes raise `ValueError`.
        """
        self.load_arrays(unpack(self, state, self.arrays()))


NEW_ROW = -1
"""The row number of a container that was not there before."""


R = TypeVar("R", bound=ArrayState[Any])


def reindex(source: R, rows: Indices) -> R:
    """Return the state for other containers: container `i` continues from container `rows[i]`."""
    kept = np.flatnonzero(rows != NEW_ROW)
    if len(set(rows[kept].tolist())) != kept.size:
        raise ValueError("rows: two containers would continue from the same row")
    other = type(source)(rows.size, source.settings)
    old, new = source.arrays(), dict(other.arrays())
    for name, axis in _container_axes(source).items():
        if axis is None:
            new[name] = old[name].copy()
        else:
            into = np.moveaxis(new[name], axis, 0)
            into[kept] = np.moveaxis(old[name], axis, 0)[rows[kept]]
    for name in filter(is_pool, old):
        _compact_pool(new, name.removesuffix("pool"))
    # Arrays that are already its own stay in place: a copy would be a third of the state.
    other.load_arrays(new)
    return other


def _container_axes(source: ArrayState[Any]) -> dict[str, int | None]:
    """Return the axis of each array that stands for containers; None if none does."""
    # The axis is the one that differs between one and two containers, so that strategies need not declare it.
    one, two = (type(source)(containers, source.settings).arrays() for containers in (1, 2))
    return {
        name: next((axis for axis in range(array.ndim) if array.shape[axis] != two[name].shape[axis]), None)
        for name, array in one.items()
    }


def _compact_pool(arrays: dict[str, Array], prefix: str) -> None:
    """Keep only the items of the pool that a container holds; the first item belongs to nobody."""
    pages, pool = arrays[prefix + "pages"], arrays[prefix + "pool"]
    # Item 0 means `no page` in every row: it has to stay the first, even if no row holds it.
    held = np.union1d(pages, 0)
    arrays[prefix + "pages"] = np.searchsorted(held, pages).astype(pages.dtype)
    arrays[prefix + "pool"] = pool[held]
    arrays[prefix + "used"] = np.array([held.size], dtype=arrays[prefix + "used"].dtype)
