"""Samples on their way from many answers to one grid: a column a container, made when its first sample comes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.usage.prometheus.answer import Rows
from trimtab.usage.trace import Floats
from trimtab.usage.usage import Oom, PodContainer, plausible


class Columns(dict[PodContainer, Floats]):
    """What was answered so far. Laying the same samples twice changes nothing, so a part may be answered twice."""

    def __init__(self, steps: int, *, most: float) -> None:
        super().__init__()
        self._steps = steps
        self._most = most

    def __missing__(self, container: PodContainer) -> Floats:
        column = self[container] = np.full(self._steps, np.nan)
        return column

    def lay(self, container: PodContainer, rows: Rows, values: Floats) -> None:
        """Of two samples on one step the higher counts. What cannot be true is no sample."""
        if len(rows):
            np.fmax.at(self[container], rows, plausible(values.copy(), most=self._most))

    def without_edges(self, width: int) -> None:
        """Drop the first and last samples of each run: a rate over a window that is part empty comes out too low.

        A run of no more than these is kept: of a job that ran for a minute little is better than nothing. Where a
        column begins or ends with the grid, the window reaches into what lies beyond.
        """
        for column in self.values():
            bounds = np.flatnonzero(np.diff(np.isnan(column), prepend=True, append=True))
            for begin, end in zip(bounds[0::2], bounds[1::2], strict=True):
                left = width if begin > 0 else 0
                right = width if end < len(column) else 0
                if end - begin > left + right:
                    column[begin : begin + left] = np.nan
                    column[end - right : end] = np.nan

    def grid(self, containers: Sequence[PodContainer]) -> Floats:
        """All columns side by side; those of containers without a sample are NaN. Empties itself on the way."""
        grid = np.full((self._steps, len(containers)), np.nan)
        for place, name in enumerate(containers):
            if (column := self.pop(name, None)) is not None:
                grid[:, place] = column
        return grid


def events(kills: Columns, *, start: float, step: float, window: float) -> tuple[Oom, ...]:
    """The kills behind samples that are there while one is within the window: one for each run of samples.

    Two sources that see the same kill do so a little apart, so a run goes on across a gap of a window.
    """
    found = []
    for container, column in kills.items():
        seen = np.flatnonzero(column > 0)
        if len(seen):
            begins = np.concatenate(([True], np.diff(seen) * step > window))
            found += [Oom(start + step * float(row), container) for row in seen[begins]]
    return tuple(sorted(found))
