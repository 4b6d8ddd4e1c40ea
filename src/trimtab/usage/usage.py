"""Usage of pods' containers over time, as arrays, and its summary statistics.

Pods come and go: `pod_ownership` finds the workload of a pod, and `aggregation` turns this into usage of
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
"""The largest plausible memory of a container in bytes; a larger sample is an error of its source."""

_BLOCK = 256


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


@dataclass(frozen=True, slots=True)
class ResourceSummary:
    """Statistics of one resource, one column per container; NaN and 0 without samples."""

    values: Floats
    """One row per requested quantile, interpolated between the two nearest samples."""
    sample_counts: npt.NDArray[np.int64]
    first_times: Floats
    """The time of the first sample."""
    last_times: Floats


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """Summary statistics of the usage of each container."""

    containers: tuple[PodContainer, ...]
    quantiles: tuple[float, ...]
    cpu: ResourceSummary
    memory: ResourceSummary


def summarize_usage(usage: Usage, quantiles: Sequence[float]) -> UsageSummary:
    """Return quantiles (0 to 1), sample counts, and first and last sample times per container."""
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
    for left in range(0, columns, _BLOCK):  # copy a few columns at a time to bound memory
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
    """Return the interpolated value at a fractional position of each column."""
    below = np.floor(places).astype(np.int64)
    column = np.arange(ordered.shape[1])
    low, high = ordered[below, column], ordered[np.ceil(places).astype(np.int64), column]
    answer: Floats = low + (high - low) * (places - below)
    return answer
