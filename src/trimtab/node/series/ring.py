"""The samples of one metric of one subject on a time grid, in a fixed number of bytes.

A cell is the mean of the samples in its step, or NaN. Single precision is sufficient for measurements. It
uses `array` instead of numpy, which would be a quarter of the agent's memory, because windows of a few
hundred cells are read now and then.
"""

from __future__ import annotations

import math
from array import array
from typing import Self

from trimtab.node.model import WindowStats
from trimtab.timing import is_recent

_NEVER = -1


class Ring:
    """A ring of cells, the newest of which has the newest sample."""

    __slots__ = ("_at", "_count", "_last", "_values", "newest", "period", "recent", "step")

    def __init__(
        self, cells: int, step: float, *, period: float | None = None, recent: Ring | None = None
    ) -> None:
        self.step = step
        self.period = step if period is None else period
        """The seconds between samples; a cell may have several."""
        self.recent = recent
        """The latest samples in shorter cells, if this ring's cells are too long for short windows."""
        self.newest = _NEVER
        """The number of the newest cell: its time in steps since 1970."""
        self._count = 0
        self._at, self._last = -math.inf, math.nan
        self._values = array("f", [math.nan]) * cells

    @property
    def cells(self) -> int:
        return len(self._values)

    def add(self, t: float, value: float) -> None:
        if self.recent is not None:
            self.recent.add(t, value)
        cell = int(t // self.step)
        values, newest = self._values, self.newest
        size = len(values)
        place = cell % size
        if newest - cell == 1:
            return  # a late sample of the cell before
        self._at, self._last = t, value
        if cell == newest:
            self._count += 1
            values[place] += (value - values[place]) / self._count
            return
        if cell < newest:
            newest = cell - size  # the clock was set back: drop later samples
        for missed in range(max(newest + 1, cell - size + 1), cell):
            values[missed % size] = math.nan
        values[place] = value
        self.newest, self._count = cell, 1

    def last(self, now: float) -> float | None:
        """Return the newest sample, unless three periods passed without another."""
        return self._last if is_recent(self._at, now, within=4 * self.period) else None

    def samples(self, seconds: float, now: float) -> list[float] | None:
        """Return the samples of the last `seconds`; None if they span less than half of them."""
        if self.recent is not None and seconds <= self.recent.cells * self.recent.step:
            return self.recent.samples(seconds, now)
        size = len(self._values)
        after = max(int((now - max(seconds, self.step)) // self.step), self.newest - size)
        if self.newest <= after:
            return None
        first, end = (after + 1) % size, self.newest % size + 1
        cells = self._values[first:end] if first < end else self._values[first:] + self._values[:end]
        known = [value for value in cells if value == value]  # noqa: PLR0124 - NaN is not itself
        if not known:
            return None
        oldest = next(place for place, value in enumerate(cells) if value == value)  # noqa: PLR0124
        return known if (len(cells) - oldest) * self.step >= seconds / 2 else None

    def is_idle(self, now: float) -> bool:
        """Return whether every sample is older than the ring's window."""
        return now // self.step - self.newest >= len(self._values)

    def copy_into(self, other: Ring) -> Ring:
        """Return the other ring with all samples of this one, as far as they fit."""
        recent = [] if self.recent is None else self.recent.list_cells()
        first = recent[0][0] if recent else math.inf
        before = [each for each in self.list_cells() if each[0] + self.step <= first]  # the rest is in both
        for t, value in (*before, *recent):
            other.add(t, value)
        other._at, other._last = self._at, self._last
        return other

    def list_cells(self) -> list[tuple[float, float]]:
        """Return the start and mean of each cell with samples."""
        size = len(self._values)
        cells = range(max(0, self.newest - size + 1), self.newest + 1)
        timed = ((cell * self.step, self._values[cell % size]) for cell in cells)
        return [(t, value) for t, value in timed if value == value]  # noqa: PLR0124 - NaN is not itself

    def to_state(self) -> tuple[float, int, bytes]:
        return self.step, self.newest, self._values.tobytes()

    @classmethod
    def from_state(cls, step: float, newest: int, values: bytes) -> Self:
        """Restore what `to_state` returned; raise ValueError for other data."""
        if not values or not step > 0 or newest < _NEVER:
            raise ValueError("invalid ring state")
        ring = cls(1, step)
        ring.newest = newest
        ring._values = array("f")
        ring._values.frombytes(values)
        ring._count = 1
        ring._at, ring._last = newest * step, ring._values[newest % len(ring._values)]
        return ring


def compute_stats(samples: list[float]) -> WindowStats:
    """Compute statistics by nearest rank, so that every percentile is an actual sample."""
    ordered = sorted(samples)

    def rank(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return WindowStats(
        avg=math.fsum(ordered) / len(ordered),
        p50=rank(0.50),
        p90=rank(0.90),
        p95=rank(0.95),
        p99=rank(0.99),
        samples=len(ordered),
    )
