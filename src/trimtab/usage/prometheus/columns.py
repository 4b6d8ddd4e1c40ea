"""Collect samples from many responses into one grid, with one column per container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from sys import intern

import numpy as np

from trimtab.usage.errors import UsageResponseError
from trimtab.usage.prometheus.response import Indices, RowIndices
from trimtab.usage.prometheus.schema import ContainerLabels
from trimtab.usage.trace import Floats
from trimtab.usage.usage import Oom, PodContainer, mask_implausible

_MIN_COLUMNS = 16
_MAX_EXPECTED = 300_000
_BLOCK = 4096


class ContainerNames:
    """The containers that the series of one read name; one object each, although every response repeats them."""

    def __init__(self) -> None:
        self._known: dict[PodContainer, PodContainer] = {}

    def parse(self, series: Mapping[str, str], labels: ContainerLabels) -> PodContainer:
        """Return the container that a series names by these labels."""
        try:
            found = PodContainer(
                intern(series[labels.namespace]), series[labels.pod], intern(series[labels.container])
            )
        except KeyError as missing:
            raise UsageResponseError(f"the response has a series without the label {missing}") from None
        return self._known.setdefault(found, found)


class SampleColumns:
    """The samples received so far. Adding samples twice changes nothing, so shards can be repeated."""

    def __init__(self, steps: int, *, maximum: float, expected: int = 0) -> None:
        """Create empty columns; `expected` is their approximate number, beyond which they are reallocated."""
        self._steps = steps
        self._maximum = maximum
        self._column_numbers: dict[PodContainer, int] = {}
        # Columns are rows in memory: most windows are short and containers many. Unused rows take no memory.
        # An absurdly large number from a server is capped, and the array grows when the samples really come.
        self._columns = np.empty((min(max(expected, _MIN_COLUMNS), _MAX_EXPECTED), steps))

    @property
    def containers(self) -> AbstractSet[PodContainer]:
        return self._column_numbers.keys()

    def __getitem__(self, container: PodContainer) -> Floats:
        """Return one column and create it if necessary."""
        column: Floats = self._columns[self._assign_column(container)]
        return column

    def add_samples(
        self, containers: Sequence[PodContainer], which: Indices, rows: RowIndices, values: Floats
    ) -> None:
        """Add samples, each for one of these containers; a container without samples gets no column.

        The higher of two samples in one step is kept. Implausible values are dropped.
        """
        seen = np.unique(which)
        columns = np.zeros(len(containers), np.intp)
        columns[seen] = [self._assign_column(containers[number]) for number in seen]
        at = columns[which] * self._steps + rows
        np.fmax.at(self._columns.reshape(-1), at, mask_implausible(values.copy(), maximum=self._maximum))

    def add_rows(self, containers: Sequence[PodContainer], first: int, values: Floats) -> None:
        """Add a row of values per container, NaN without a sample, from step `first` on.

        `values` is modified.
        """
        some = ~np.isnan(mask_implausible(values, maximum=self._maximum)).all(axis=1)
        for number in np.flatnonzero(some):
            index = self._assign_column(
                containers[int(number)]
            )  # before slicing: it may reallocate all columns
            column = self._columns[index, first : first + values.shape[1]]
            np.fmax(column, values[number], out=column)

    def drop_edges(self, width: int) -> None:
        """Drop the first and last samples of each run, because a rate over a partly empty window is too low.

        A run that is no longer than these edges is kept: an imprecise rate of a job that ran for a minute is
        better than none. At the ends of the grid nothing is dropped, because the window there extends beyond
        the grid.
        """
        for top in range(0, len(self._column_numbers), _BLOCK):
            block = self._columns[: len(self._column_numbers)][top : top + _BLOCK]
            absent = np.isnan(block)
            for index in np.flatnonzero(absent.any(axis=1) & ~absent.all(axis=1)):
                _drop_edges(block[index], width)

    def find_undersampled(self, others: SampleColumns) -> set[PodContainer]:
        """Return the containers that have fewer than half as many samples as in `others`."""
        ours = self._count_samples()
        return {name for name, count in others._count_samples().items() if 2 * ours.get(name, 0) < count}

    def replace_columns(self, others: SampleColumns, containers: AbstractSet[PodContainer]) -> None:
        """Replace the samples of those of these containers that `others` has."""
        for container in containers & others.containers:
            self[container][:] = others[container]

    def take_grid(self, containers: Sequence[PodContainer]) -> Floats:
        """Return all columns side by side, NaN for containers without a sample, and clear this object."""
        grid = np.full((self._steps, len(containers)), np.nan)
        places = np.array([self._column_numbers.get(name, -1) for name in containers], np.intp)
        present = np.flatnonzero(places >= 0)
        for some in range(0, len(present), _BLOCK):
            block = present[some : some + _BLOCK]
            grid[:, block] = self._columns[places[block]].T
        self._column_numbers, self._columns = {}, np.empty((_MIN_COLUMNS, self._steps))
        return grid

    def _count_samples(self) -> dict[PodContainer, int]:
        """Return the number of samples of each container."""
        counts: list[int] = []
        for top in range(0, len(self._column_numbers), _BLOCK):
            block = self._columns[: len(self._column_numbers)][top : top + _BLOCK]
            counts += np.count_nonzero(~np.isnan(block), axis=1).tolist()
        return dict(zip(self._column_numbers, counts, strict=True))

    def _assign_column(self, container: PodContainer) -> int:
        index = self._column_numbers.get(container)
        if index is None:
            index = self._column_numbers[container] = len(self._column_numbers)
            if index == len(self._columns):
                self._columns = np.concatenate(
                    [self._columns, np.empty((max(_MIN_COLUMNS, index // 2), self._steps))]
                )
            self._columns[index] = np.nan
        return index


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
    """Return one kill for each run of samples; a sample is present while a kill is within its window.

    Two sources report the same kill slightly apart, so a run continues across a gap of one window. A kill
    before `since` was already returned by an earlier read.
    """
    found = []
    for container in kills.containers:
        seen = np.flatnonzero(kills[container] > 0)
        if len(seen):
            begins = np.concatenate(([True], np.diff(seen) * step > window))
            times = start + step * seen[begins]
            found += [Oom(float(time), container) for time in times[times >= since]]
    return tuple(sorted(found))
