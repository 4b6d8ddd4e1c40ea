"""Usage of pods' containers over time, as arrays, and what can be said of it in a few numbers.

Pods come and go; which workload a pod belongs to is for `owners` to say, and `merge` turns this into usage of
workloads' containers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.usage.trace import Floats

MAX_CORES = 1e6
MAX_BYTES = 1e15
"""No container has more; a sample that says so is a fault of its source."""

_BLOCK = 256


class PodContainer(NamedTuple):
    """A container of a pod, dead or alive, by its names."""

    namespace: str
    pod: str
    container: str


class Oom(NamedTuple):
    """A container that was killed for memory."""

    at: float
    """Seconds since 1970: when it was seen, which is up to a step after it happened."""
    container: PodContainer


@dataclass(frozen=True, slots=True)
class Usage:
    """Samples on a regular grid of time: a row a step, a column a pod's container; NaN where there is no sample.

    Row `i` is of the time `start + i * step`, in seconds since 1970, and tells of the step that ends then: the mean of
    CPU over it and, where the source knows it, the highest memory in it.
    """

    containers: tuple[PodContainer, ...]
    start: float
    step: float
    cpu: Floats
    """Cores."""
    memory: Floats
    """Bytes."""
    throttled: Floats | None = None
    """The share of CFS periods in which the container was held back, 0 to 1; None where the source cannot know."""
    ooms: tuple[Oom, ...] | None = None
    """In the order of time; None where the source cannot know."""

    @property
    def steps(self) -> int:
        return len(self.cpu)

    @property
    def times(self) -> Floats:
        return self.start + self.step * np.arange(self.steps, dtype=np.float64)

    def slice_steps(self, first: int, end: int) -> Usage:
        """Return the steps from one to, not including, another, with the kills that were seen in them."""
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
        """Return the newest sample of each container as one step, which keeps none of the others in memory; no kills."""
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
        """Return when each container was last sampled; NaN where it has no sample."""
        sampled = ~(np.isnan(self.cpu) & np.isnan(self.memory))
        last = self.steps - 1 - sampled[::-1].argmax(axis=0)
        times: Floats = np.where(sampled.any(axis=0), self.start + self.step * last, np.nan)
        return times

    @property
    def sample_count(self) -> int:
        """How often any container was sampled, whether for one resource or for both."""
        return int(np.count_nonzero(~(np.isnan(self.cpu) & np.isnan(self.memory))))


def _take_latest(grid: Floats) -> Floats:
    """Return the last number of each column as one row; NaN where it has none."""
    if not len(grid):
        return grid.copy()
    last = len(grid) - 1 - (~np.isnan(grid))[::-1].argmax(axis=0)
    newest: Floats = np.take_along_axis(grid, last[None, :], axis=0)
    return newest


def mask_implausible(values: Floats, *, maximum: float) -> Floats:
    """The same array, with NaN for what no container can use: negative, infinite or more than `most`."""
    with np.errstate(invalid="ignore"):
        values[~((values >= 0) & (values <= maximum))] = np.nan
    return values


@dataclass(frozen=True, slots=True)
class ResourceSummary:
    """What one resource's samples come to, a column a container. NaN and 0 where there are none."""

    values: Floats
    """A row a quantile asked for, interpolated between the two nearest samples."""
    sample_counts: npt.NDArray[np.int64]
    first_times: Floats
    """The time of the first sample."""
    last_times: Floats


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """Usage of each container in a few numbers."""

    containers: tuple[PodContainer, ...]
    quantiles: tuple[float, ...]
    cpu: ResourceSummary
    memory: ResourceSummary


def summarize_usage(usage: Usage, quantiles: Sequence[float]) -> UsageSummary:
    """Any quantiles (0 to 1) of each container, with the number of samples and when the first and last were."""
    return UsageSummary(
        containers=usage.containers,
        quantiles=tuple(quantiles),
        cpu=_summarize_resource(usage.cpu, usage.times, quantiles),
        memory=_summarize_resource(usage.memory, usage.times, quantiles),
    )


def _summarize_resource(grid: Floats, times: Floats, wanted: Sequence[float]) -> ResourceSummary:
    columns = grid.shape[1]
    values = np.full((len(wanted), columns), np.nan)
    samples = np.zeros(columns, np.int64)
    first, last = np.full(columns, np.nan), np.full(columns, np.nan)
    for left in range(0, columns, _BLOCK):  # a copy of some columns at a time, not of all
        some = slice(left, left + _BLOCK)
        block = grid[:, some]
        present = ~np.isnan(block)
        samples[some] = count = present.sum(axis=0)
        seen = count > 0
        if not seen.any():
            continue
        first[some][seen] = times[present.argmax(axis=0)[seen]]
        last[some][seen] = times[len(times) - 1 - present[::-1].argmax(axis=0)[seen]]
        ordered = np.sort(block, axis=0)  # NaN last
        for row, quantile in enumerate(wanted):
            values[row, some] = _interpolate(ordered, quantile * np.maximum(count - 1, 0))
    return ResourceSummary(values, samples, first, last)


def _interpolate(ordered: Floats, places: Floats) -> Floats:
    """The value at a fractional place of each column."""
    below = np.floor(places).astype(np.int64)
    column = np.arange(ordered.shape[1])
    low, high = ordered[below, column], ordered[np.ceil(places).astype(np.int64), column]
    answer: Floats = low + (high - low) * (places - below)
    return answer
