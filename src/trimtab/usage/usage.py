"""Usage of pods' containers over time, as arrays, and its summary statistics.

Pods come and go: `pod_ownership` finds the workload of a pod, and `aggregation` turns this into usage of
workloads' containers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from trimtab.usage.trace import Floats

MAX_CORES = 1e6
MAX_BYTES = 1e15
"""The largest plausible memory of a container in bytes; a larger sample is an error of its source."""


class PodContainer(NamedTuple):
    """The names that identify a container of a running or deleted pod."""

    namespace: str
    pod: str
    container: str


class Oom(NamedTuple):
    """A container that was killed for exceeding its memory."""

    at: float
    """The time in seconds since 1970 at which the kill was observed, up to a step after it happened."""
    container: PodContainer


@dataclass(frozen=True, slots=True)
class Usage:
    """Samples on a regular time grid: one row per step, one column per pod container, NaN without a sample.

    Row `i` is at the time `start + i * step`, in seconds since 1970, and covers the step that ends then: the
    mean CPU and, where the source supports it, the highest memory.
    """

    containers: tuple[PodContainer, ...]
    start: float
    step: float
    cpu: Floats
    """The CPU usage in cores."""
    memory: Floats
    """The memory usage in bytes."""
    throttled: Floats | None = None
    """The share of CFS periods in which the container was throttled, 0 to 1; None if the source has none."""
    ooms: tuple[Oom, ...] | None = None
    """The kills in chronological order; None if the source cannot detect them."""

    @property
    def steps(self) -> int:
        return len(self.cpu)

    @property
    def times(self) -> Floats:
        return self.start + self.step * np.arange(self.steps, dtype=np.float64)

    def slice_steps(self, first: int, end: int) -> Usage:
        """Return the steps from `first` up to, not including, `end`, with the kills observed in them."""
        steps = slice(first, end)
        start = self.start + first * self.step
        last = self.start + (min(end, self.steps) - 1) * self.step
        ooms = self.ooms
        return replace(
            self,
            start=start,
            cpu=self.cpu[steps],
            memory=self.memory[steps],
            throttled=None if self.throttled is None else self.throttled[steps],
            ooms=None if ooms is None else tuple(oom for oom in ooms if start - self.step < oom.at <= last),
        )

    def take_latest(self) -> Usage:
        """Return the newest sample of each container as one step, without kills.

        The result holds no reference to the other steps, so their memory can be freed.
        """
        last = max(self.steps - 1, 0)
        return replace(
            self,
            start=self.start + last * self.step,
            cpu=_take_latest(self.cpu),
            memory=_take_latest(self.memory),
            throttled=None if self.throttled is None else _take_latest(self.throttled),
            ooms=None if self.ooms is None else (),
        )

    def last_times(self) -> Floats:
        """Return the time of each container's last sample; NaN if it has none."""
        sampled = ~(np.isnan(self.cpu) & np.isnan(self.memory))
        last = self.steps - 1 - sampled[::-1].argmax(axis=0)
        times: Floats = np.where(sampled.any(axis=0), self.start + self.step * last, np.nan)
        return times

    @property
    def sample_count(self) -> int:
        """Return the number of cells with a sample of at least one resource."""
        return int(np.count_nonzero(~(np.isnan(self.cpu) & np.isnan(self.memory))))


def _take_latest(grid: Floats) -> Floats:
    """Return the last value of each column as one row; NaN for an empty column."""
    if not len(grid):
        return grid.copy()
    last = len(grid) - 1 - (~np.isnan(grid))[::-1].argmax(axis=0)
    newest: Floats = np.take_along_axis(grid, last[None, :], axis=0)
    return newest


def mask_implausible(values: Floats, *, maximum: float) -> Floats:
    """Replace implausible values by NaN, in place: negative, infinite or above `maximum`."""
    with np.errstate(invalid="ignore"):
        values[~((values >= 0) & (values <= maximum))] = np.nan
    return values
