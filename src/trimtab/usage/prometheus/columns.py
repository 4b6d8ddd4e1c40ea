"""Samples on their way from many answers to one grid: a column a container, made when its first sample comes."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from trimtab.usage.prometheus.response import Indices, RowIndices
from trimtab.usage.trace import Floats
from trimtab.usage.usage import Oom, PodContainer, mask_implausible

_MIN_COLUMNS = 16
_MAX_EXPECTED = 300_000
_BLOCK = 4096


class SampleColumns:
    """What was answered so far. Laying the same samples twice changes nothing, so a part may be answered twice."""

    def __init__(self, steps: int, *, maximum: float, expected: int = 0) -> None:
        """`expected` is about how many columns there will be: with more, what is there has to be moved."""
        self._steps = steps
        self._maximum = maximum
        self._column_numbers: dict[PodContainer, int] = {}
        # Side by side, for most windows are short and there are many containers. What is not used takes no memory.
        # A server that tells of absurdly many is believed when they come.
        self._columns = np.empty((min(max(expected, _MIN_COLUMNS), _MAX_EXPECTED), steps))

    @property
    def containers(self) -> AbstractSet[PodContainer]:
        return self._column_numbers.keys()

    def __getitem__(self, container: PodContainer) -> Floats:
        """One column, made if it is not there."""
        column: Floats = self._columns[self._assign_column(container)]
        return column

    def add_samples(
        self, containers: Sequence[PodContainer], which: Indices, rows: RowIndices, values: Floats
    ) -> None:
        """Lay samples, each of one of these containers; who has none gets no column.

        Of two on one step the higher counts. What cannot be true is no sample.
        """
        seen = np.unique(which)
        places = np.zeros(len(containers), np.intp)
        places[seen] = [self._assign_column(containers[number]) for number in seen]
        at = places[which] * self._steps + rows
        np.fmax.at(self._columns.reshape(-1), at, mask_implausible(values.copy(), maximum=self._maximum))

    def add_rows(self, containers: Sequence[PodContainer], first: int, values: Floats) -> None:
        """The same for all steps from the first on, a row a container, NaN where it has no sample; `values` is used up."""
        some = ~np.isnan(mask_implausible(values, maximum=self._maximum)).all(axis=1)
        for number in np.flatnonzero(some):
            place = self._assign_column(containers[int(number)])  # first: it may move all columns
            column = self._columns[place, first : first + values.shape[1]]
            np.fmax(column, values[number], out=column)

    def drop_edges(self, width: int) -> None:
        """Drop the first and last samples of each run: a rate over a window that is part empty comes out too low.

        A run of no more than these is kept: of a job that ran for a minute little is better than nothing. Where a
        column begins or ends with the grid, the window reaches into what lies beyond.
        """
        for top in range(0, len(self._column_numbers), _BLOCK):
            block = self._columns[: len(self._column_numbers)][top : top + _BLOCK]
            absent = np.isnan(block)
            for place in np.flatnonzero(absent.any(axis=1) & ~absent.all(axis=1)):
                _drop_edges(block[place], width)

    def find_undersampled(self, others: SampleColumns) -> set[PodContainer]:
        """Who has samples on fewer than half of the steps on which there are others of it."""
        ours = self._count_samples()
        return {name for name, count in others._count_samples().items() if 2 * ours.get(name, 0) < count}

    def replace_columns(self, others: SampleColumns, containers: AbstractSet[PodContainer]) -> None:
        """Have the samples of others for those of these containers that are there."""
        for container in containers & others.containers:
            self[container][:] = others[container]

    def take_grid(self, containers: Sequence[PodContainer]) -> Floats:
        """All columns side by side; those of containers without a sample are NaN. Nothing is left here."""
        grid = np.full((self._steps, len(containers)), np.nan)
        places = np.array([self._column_numbers.get(name, -1) for name in containers], np.intp)
        there = np.flatnonzero(places >= 0)
        for some in range(0, len(there), _BLOCK):
            block = there[some : some + _BLOCK]
            grid[:, block] = self._columns[places[block]].T
        self._column_numbers, self._columns = {}, np.empty((_MIN_COLUMNS, self._steps))
        return grid

    def _count_samples(self) -> dict[PodContainer, int]:
        """How many samples each container has."""
        counts: list[int] = []
        for top in range(0, len(self._column_numbers), _BLOCK):
            block = self._columns[: len(self._column_numbers)][top : top + _BLOCK]
            counts += np.count_nonzero(~np.isnan(block), axis=1).tolist()
        return dict(zip(self._column_numbers, counts, strict=True))

    def _assign_column(self, container: PodContainer) -> int:
        place = self._column_numbers.get(container)
        if place is None:
            place = self._column_numbers[container] = len(self._column_numbers)
            if place == len(self._columns):
                self._columns = np.concatenate(
                    [self._columns, np.empty((max(_MIN_COLUMNS, place // 2), self._steps))]
                )
            self._columns[place] = np.nan
        return place


def _drop_edges(column: Floats, width: int) -> None:
    bounds = np.flatnonzero(np.diff(np.isnan(column), prepend=True, append=True))
    for begin, end in zip(bounds[0::2], bounds[1::2], strict=True):
        left = width if begin > 0 else 0
        right = width if end < len(column) else 0
        if end - begin > left + right:
            column[begin : begin + left] = np.nan
            column[end - right : end] = np.nan


def detect_ooms(
    kills: SampleColumns, *, start: float, step: float, window: float, since: float
) -> tuple[Oom, ...]:
    """The kills behind samples that are there while one is within the window: one for each run of samples.

    Two sources that see the same kill do so a little apart, so a run goes on across a gap of a window. One that was
    seen before `since` was told then.
    """
    found = []
    for container in kills.containers:
        seen = np.flatnonzero(kills[container] > 0)
        if len(seen):
            begins = np.concatenate(([True], np.diff(seen) * step > window))
            times = start + step * seen[begins]
            found += [Oom(float(time), container) for time in times[times >= since]]
    return tuple(sorted(found))
