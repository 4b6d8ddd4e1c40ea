"""The samples of one metric of one subject, on a grid of time, in a fixed number of bytes.

A cell holds the mean of the samples that fell into its step, or NaN. Single precision is ample for what is itself a
measurement. It is plain `array`, not numpy: the agent reads windows of a few hundred cells now and then, and numpy alone
would take a quarter of its memory.
"""

from __future__ import annotations

import math
from array import array
from typing import Self

from trimtab.node.model import WindowStats

_NEVER = -1


class Ring:
    """So many cells of so many seconds, the newest of which is the newest sample's."""

    __slots__ = ("_at", "_count", "_last", "_values", "newest", "period", "recent", "step")

    def __init__(
        self, cells: int, step: float, *, period: float | None = None, recent: Ring | None = None
    ) -> None:
        self.step = step
        self.period = step if period is None else period
        """How often there is a sample: a cell may be of several."""
        self.recent = recent
        """The last of the same samples in shorter cells, where this one's are longer than those of any short window."""
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
            newest = cell - size  # the clock was set back: what is later never was
        for missed in range(max(newest + 1, cell - size + 1), cell):
            values[missed % size] = math.nan
        values[place] = value
        self.newest, self._count = cell, 1

    def last(self, now: float) -> float | None:
        """The newest sample, unless three periods went by without another."""
        return self._last if 0 <= now - self._at < 4 * self.period else None

    def samples(self, seconds: float, now: float) -> list[float] | None:
        """Those of the last so many seconds, or of the newest cell; None when they do not span half of them."""
        if self.recent is not None and seconds <= self.recent.cells * self.recent.step:
            return self.recent.samples(seconds, now)
        size = len(self._values)
        after = max(int((now - max(seconds, self.step)) // self.step), self.newest - size)
        if self.newest <= after:
            return None
        first, end = (after + 1) % size, self.newest % size + 1
        cells = self._values[first:end] if first < end else self._values[first:] + self._values[:end]
        there = [value for value in cells if value == value]  # noqa: PLR0124 - NaN is not itself
        if not there:
            return None
        oldest = next(place for place, value in enumerate(cells) if value == value)  # noqa: PLR0124
        return there if (len(cells) - oldest) * self.step >= seconds / 2 else None

    def is_idle(self, now: float) -> bool:
        """Whether every sample has left the window that it keeps."""
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
        """Return when each cell begins that holds samples, and their mean."""
        size = len(self._values)
        cells = range(max(0, self.newest - size + 1), self.newest + 1)
        timed = ((cell * self.step, self._values[cell % size]) for cell in cells)
        return [(t, value) for t, value in timed if value == value]  # noqa: PLR0124 - NaN is not itself

    def to_state(self) -> tuple[float, int, bytes]:
        return self.step, self.newest, self._values.tobytes()

    @classmethod
    def from_state(cls, step: float, newest: int, values: bytes) -> Self:
        """What `packed` gave; ValueError for what it never gives."""
        if not values or not step > 0 or newest < _NEVER:
            raise ValueError("no ring of samples")
        ring = cls(1, step)
        ring.newest = newest
        ring._values = array("f")
        ring._values.frombytes(values)
        ring._count = 1
        ring._at, ring._last = newest * step, ring._values[newest % len(ring._values)]
        return ring


def compute_stats(samples: list[float]) -> WindowStats:
    """By nearest rank: every percentile is a sample that was seen."""
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
