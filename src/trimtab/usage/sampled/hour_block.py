"""An hour of samples of many containers, one cell per step, packed into bytes for storage.

A cell has the mean CPU and the highest memory of its samples. Single precision is sufficient for measurements
and halves the size.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from typing import NamedTuple, Self

import msgspec
import numpy as np
import numpy.typing as npt

from trimtab.api import Quantity, QuantityError
from trimtab.usage.usage import MAX_BYTES, MAX_CORES, PodContainer

HOUR_SECONDS = 3600.0
MAX_CONTAINERS = 200_000
"""The maximum number of containers in an hour, which bounds memory; further ones are left out."""

Singles = npt.NDArray[np.float32]
Counts = npt.NDArray[np.uint16]


class ContainerSample(NamedTuple):
    """The usage of a container at one time; NaN where unknown."""

    container: PodContainer
    at: float
    cpu: float
    memory: float


def parse_amount(quantity: str | int | None) -> float:
    """Parse a measured quantity; NaN for an invalid one, because one bad value must not lose the others."""
    try:
        return math.nan if quantity is None else Quantity.parse(str(quantity)).cores
    except QuantityError:
        return math.nan


class _PackedHour(msgspec.Struct, array_like=True):
    step: float
    containers: list[PodContainer]
    cpu: bytes
    counts: bytes
    memory: bytes


class HourBlock:
    """The samples of one hour, numbered since 1970."""

    def __init__(self, number: int, *, step: float) -> None:
        self.number = number
        self.step = step
        self.containers: dict[PodContainer, int] = {}
        self._cpu: Singles = np.zeros((self.cells, 0), np.float32)
        self._counts: Counts = np.zeros((self.cells, 0), np.uint16)
        self._memory: Singles = np.full((self.cells, 0), np.nan, np.float32)

    @property
    def cells(self) -> int:
        return max(1, round(HOUR_SECONDS / self.step))

    @property
    def times(self) -> npt.NDArray[np.float64]:
        """Return the start time of each cell."""
        return self.number * HOUR_SECONDS + self.step * np.arange(self.cells, dtype=np.float64)

    @property
    def cpu(self) -> Singles:
        """The sum of the CPU samples of each cell, one column per container."""
        return self._cpu[:, : len(self.containers)]

    @property
    def counts(self) -> Counts:
        """The number of samples in each sum."""
        return self._counts[:, : len(self.containers)]

    @property
    def memory(self) -> Singles:
        return self._memory[:, : len(self.containers)]

    def add(self, samples: Iterable[ContainerSample]) -> None:
        """Add samples of this hour; implausible values are dropped."""
        placed = [
            (column, at, cpu, memory)
            for container, at, cpu, memory in samples
            if (column := self._assign_column(container)) is not None
        ]
        if not placed:
            return
        columns, at, cpu, memory = np.array(placed, np.float64).T
        into = columns.astype(np.int64)
        cells = np.clip((at - self.number * HOUR_SECONDS) / self.step, 0, self.cells - 1).astype(np.int64)
        used = (cpu >= 0) & (cpu <= MAX_CORES)
        # A running container uses some memory; 0 is reported for one that has just ended.
        held = (memory > 0) & (memory <= MAX_BYTES)
        np.add.at(self._cpu, (cells[used], into[used]), cpu[used].astype(np.float32))
        np.add.at(self._counts, (cells[used], into[used]), 1)
        np.fmax.at(self._memory, (cells[held], into[held]), memory[held].astype(np.float32))

    def _assign_column(self, container: PodContainer) -> int | None:
        column = self.containers.get(container)
        if column is None and len(self.containers) < MAX_CONTAINERS:
            column = self.containers[container] = len(self.containers)
            if column == self._cpu.shape[1]:
                self._grow(max(64, 2 * column))
        return column

    def _grow(self, columns: int) -> None:
        more = ((0, 0), (0, columns - self._cpu.shape[1]))
        self._cpu, self._counts = np.pad(self._cpu, more), np.pad(self._counts, more)
        self._memory = np.pad(self._memory, more, constant_values=np.nan)

    def pack(self) -> bytes:
        packed = _PackedHour(
            self.step,
            list(self.containers),
            self.cpu.tobytes(),
            self.counts.tobytes(),
            self.memory.tobytes(),
        )
        return zlib.compress(msgspec.msgpack.encode(packed), 1)

    @classmethod
    def unpack(cls, number: int, data: bytes) -> Self:
        """Return a packed hour; raise ValueError if the data is invalid."""
        try:
            packed = msgspec.msgpack.decode(zlib.decompress(data), type=_PackedHour)
        except (zlib.error, msgspec.DecodeError) as error:
            raise ValueError(f"hour {number} of the samples cannot be read: {error}") from None
        hour = cls(number, step=packed.step)
        hour.containers = {container: column for column, container in enumerate(packed.containers)}
        shape = (hour.cells, len(hour.containers))
        hour._cpu = np.frombuffer(packed.cpu, np.float32).reshape(shape).copy()
        hour._counts = np.frombuffer(packed.counts, np.uint16).reshape(shape).copy()
        hour._memory = np.frombuffer(packed.memory, np.float32).reshape(shape).copy()
        return hour
