"""The Kubernetes VPA recommender (v1.8), to the millicore and the byte.

CPU is a decaying histogram of all samples. Memory is one of daily peaks: a higher peak of the same day
replaces the one before, and an OOM kill counts as a peak above what the container had. The bounds are wide
while history is short: `upper` comes down from infinity (100 TB, 10^11 cores) and `lower` up from the floor.

Not included is what the recommender does around this: the merging of replicas, policies, caps, and its
quality metrics. `trimtab.sizing.strategies.vpa_checkpoint` reads and writes checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from trimtab.kernel import kernel
from trimtab.plugins import Settings
from trimtab.sizing.evidence import OOM_FACTOR, OOM_MIN_INCREASE
from trimtab.sizing.state import MAX_PLAUSIBLE_CPU, MAX_PLAUSIBLE_MEMORY, Array, Floats, Indices
from trimtab.sizing.stats import histogram
from trimtab.sizing.stats.histogram import (
    NO_BUCKET,
    BucketIndices,
    Buckets,
    Histogram,
    HistogramRows,
    find_buckets,
    find_percentile_buckets,
    is_empty,
)
from trimtab.sizing.strategy import Strategy, TargetRange, Targets, Traits

CPU_WEIGHT = 0.1
MAX_UNITS = 1e14
"""The highest amount of the recommender, in millicores and bytes."""
DAY = 86400.0

CPU_BUCKETS = histogram.build_exponential_buckets(first=0.01, growth=0.05, most=1000.0, units=1000.0)
MEMORY_BUCKETS = histogram.build_exponential_buckets(first=1e7, growth=0.05, most=1e12, units=1.0)


class VpaSettings(Settings):
    """The flags of the recommender, with its defaults."""

    usage_factors: ClassVar = {"margin": 1.0, "oom_bump_ratio": 0.0}

    target_percentile: float = Field(default=0.9, gt=0, lt=1)
    """The percentile of usage that is requested."""
    lower_percentile: float = Field(default=0.5, gt=0, lt=1)
    """The percentile below which a request is too small."""
    upper_percentile: float = Field(default=0.95, gt=0, lt=1)
    """The percentile above which a request is too large."""
    margin: float = Field(default=0.15, ge=0)
    """The margin that is added to all three, as a fraction."""
    half_life: float = Field(default=DAY, ge=1)
    """Seconds in which a sample loses half its weight."""
    memory_interval: float = Field(default=DAY, ge=1)
    """Seconds of one memory interval, of which only the peak counts."""
    confidence_interval: float = Field(default=DAY, ge=1)
    """Seconds of history, at one sample per minute, that count as one unit of confidence."""
    oom_bump_ratio: float = Field(default=OOM_FACTOR, ge=1)
    """The factor above what a container had for the peak of an OOM kill."""
    oom_min_bump: float = Field(default=OOM_MIN_INCREASE, ge=0)
    """The least bytes above what a container had for the peak of an OOM kill."""
    pod_min_cpu: float = Field(default=0.025, ge=0, le=1e6)
    """The least cores of a pod, divided among its containers; 0 for no floor."""
    pod_min_memory: float = Field(default=250 * 2**20, ge=0, le=2**60)
    """The least bytes of a pod, divided among its containers; 0 for no floor."""
    containers_per_pod: int = Field(default=1, ge=1, le=1_000_000)
    """The number of containers that share the floors of a pod; if not set, they are counted where pods are
    known.
    """

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if not self.lower_percentile <= self.target_percentile <= self.upper_percentile:
            raise ValueError("lower_percentile, target_percentile and upper_percentile must ascend")
        return self


class VpaHistory(NamedTuple):
    """The times and the number of CPU samples, from which confidence is computed."""

    first: Floats
    last: Floats
    samples: npt.NDArray[np.int64]


class VpaMemoryPeaks(NamedTuple):
    """The current memory interval of each container."""

    last: Floats
    """The time of the last memory sample or OOM kill."""
    end: Floats
    """The end of the interval; -inf before the first sample."""
    used: Floats
    """The highest sample of the interval."""
    oom: Floats
    """The highest amount that an OOM kill stands for in the interval."""


@kernel(error_model="numpy")
def record_samples(history: VpaHistory, t: float, found: BucketIndices) -> None:
    """Count the samples and discard those earlier than the last; samples of the same time are of replicas."""
    first, last, samples = history.first, history.last, history.samples
    for row in range(found.size):
        if found[row] == NO_BUCKET:
            continue
        if t >= last[row]:
            if samples[row] == 0:
                first[row] = t
            last[row] = t
            samples[row] += 1
        else:
            found[row] = NO_BUCKET


@kernel(error_model="numpy")
def find_rising(peaks: VpaMemoryPeaks, t: float, memory: Floats, which: Indices) -> int:
    """Find the containers whose memory rises in their interval, or that start a new one; return their number."""
    last, end, used, ooms = peaks.last, peaks.end, peaks.used, peaks.oom
    found = 0
    for row in range(memory.size):
        if 0.0 <= memory[row] <= MAX_PLAUSIBLE_MEMORY and t >= last[row]:
            last[row] = t
            # Nearly all samples change no peak, so that only these few rows take the slower path.
            if t >= end[row] or memory[row] > max(used[row], ooms[row]):
                which[found] = row
                found += 1
    return found


@kernel(error_model="numpy")
def record_peaks(
    peaks: VpaMemoryPeaks,
    t: float,
    interval: float,
    which: Indices,
    amounts: Floats,
    olds: Floats,
    news: Floats,
) -> None:
    """Record the peaks of intervals; return by `olds` and `news` which samples to remove and to add
    (NaN: none).
    """
    for index in range(which.size):
        row, amount = which[index], np.floor(amounts[index])
        if t < peaks.end[row]:
            old = max(peaks.used[row], peaks.oom[row])
            if old > 0.0 and amount > old:
                olds[index] = old
                news[index] = peaks.used[row] = amount
        else:
            start_interval(peaks, row, t, interval)
            news[index] = peaks.used[row] = amount


@kernel(error_model="numpy")
def start_interval(peaks: VpaMemoryPeaks, row: int, t: float, interval: float) -> None:
    """Start the interval that contains `t`; the first one starts with its first sample."""
    if peaks.end[row] == -np.inf:
        peaks.end[row] = t
    peaks.end[row] += np.floor((t - peaks.end[row]) / interval) * interval + interval
    peaks.used[row] = 0.0
    peaks.oom[row] = 0.0


@kernel(error_model="numpy")
def record_ooms(
    peaks: VpaMemoryPeaks,
    t: float,
    interval: float,
    bump: tuple[float, float],
    which: Indices,
    amounts: Floats,
    olds: Floats,
    news: Floats,
) -> None:
    """Record OOM kills as peaks above what these containers had. A kill that is an interval late is ignored."""
    for index in range(which.size):
        row, had = which[index], np.floor(amounts[index])
        if not 0.0 <= had <= MAX_PLAUSIBLE_MEMORY or t < peaks.last[row] - interval:
            continue
        peaks.last[row] = t
        # The amount of an earlier kill is left out: otherwise a series of them would grow without end.
        had = max(had, peaks.used[row])
        # A small container needs the least bump: a fifth more of little memory would be killed at once again.
        needed = min(max(had + bump[0], np.floor(had * bump[1])), MAX_UNITS)
        if t < peaks.end[row]:
            old = max(peaks.used[row], peaks.oom[row])
            if old > 0.0 and needed > old:
                olds[index] = old
                news[index] = peaks.oom[row] = needed
        else:
            start_interval(peaks, row, t, interval)
            news[index] = peaks.oom[row] = needed


@kernel(error_model="numpy")
def compute_targets(
    rows: HistogramRows,
    buckets: Buckets,
    history: VpaHistory,
    quantiles: tuple[float, float, float],
    margin: float,
    confidence_interval: float,
    floors: Floats,
    answers: Floats,
) -> None:
    """Compute lower, target and upper of each container, in the whole units of the recommender."""
    for row in range(history.samples.size):
        if is_empty(rows, row):
            continue
        # Confidence comes from CPU alone: a container with memory samples only has none.
        lived = history.last[row] - history.first[row] if history.samples[row] else 0.0
        span = lived / confidence_interval
        # The lesser counts: a long life with few samples, and many replicas for a short time, both prove
        # little.
        confidence = min(span, history.samples[row] / (confidence_interval / 60.0))
        wide = 1.0 + 0.001 / confidence
        factors = (1.0 / (wide * wide), 1.0, 1.0 + 1.0 / confidence)
        places = find_percentile_buckets(rows, row, quantiles)
        for which in range(3):
            base = np.floor(min(buckets.ends[places[which]] * buckets.units, MAX_UNITS))
            base += np.floor(min(base * margin, MAX_UNITS))
            amount = np.floor(min(base * factors[which], MAX_UNITS))
            answers[which, row] = max(amount, floors[row]) / buckets.units


class VpaStrategy(Strategy[VpaSettings]):
    """The Kubernetes VPA recommender."""

    name = "vpa"
    settings_type = VpaSettings
    traits = Traits(wants_replica_samples=True, divides_pod_minimum=True)

    def __init__(self, containers: int, settings: VpaSettings) -> None:
        super().__init__(containers, settings)
        self._containers_per_pod: Indices = np.full(containers, settings.containers_per_pod, np.intp)
        self.cpu = Histogram(containers, CPU_BUCKETS, settings.half_life)
        self.memory = Histogram(containers, MEMORY_BUCKETS, settings.half_life)
        self.history = VpaHistory(
            first=np.zeros(containers),
            last=np.full(containers, -np.inf),
            samples=np.zeros(containers, np.int64),
        )
        self.peaks = VpaMemoryPeaks(
            last=np.full(containers, -np.inf),
            end=np.full(containers, -np.inf),
            used=np.zeros(containers),
            oom=np.zeros(containers),
        )

    def observe(self, t: float, cpu: Floats, memory: Floats) -> None:
        found = find_buckets(CPU_BUCKETS, cpu, MAX_PLAUSIBLE_CPU)
        record_samples(self.history, t, found)
        self.cpu.add(t, found, CPU_WEIGHT)
        which = np.empty(memory.size, np.intp)
        which = which[: find_rising(self.peaks, t, memory, which)]
        olds, news = np.full((2, which.size), np.nan)
        record_peaks(self.peaks, t, self.settings.memory_interval, which, memory[which], olds, news)
        self._replace_peaks(which, olds, news)

    def set_containers_per_pod(self, containers: Indices) -> None:
        if "containers_per_pod" not in self.settings.model_fields_set:  # A value that a user set is kept.
            self._containers_per_pod = np.maximum(containers, 1)

    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None:
        s = self.settings
        olds, news = np.full((2, containers.size), np.nan)
        bump = (float(math.floor(s.oom_min_bump)), s.oom_bump_ratio)
        record_ooms(self.peaks, t, s.memory_interval, bump, containers, memory, olds, news)
        self._replace_peaks(containers, olds, news)

    def _replace_peaks(self, which: Indices, olds: Floats, news: Floats) -> None:
        old, new = (find_buckets(MEMORY_BUCKETS, amounts, MAX_UNITS) for amounts in (olds, news))
        self.memory.replace(which, self.peaks.end[which], old, new)

    def recommend(self, t: float) -> Targets:  # noqa: ARG002 - all weights age alike, so no percentile moves
        s = self.settings
        return Targets(
            cpu=self._compute_range(self.cpu, s.pod_min_cpu),
            memory=self._compute_range(self.memory, s.pod_min_memory),
        )

    def _compute_range(self, usage: Histogram, pod_floor: float) -> TargetRange:
        s = self.settings
        answers = np.full((3, self.containers), np.nan)
        quantiles = (s.lower_percentile, s.target_percentile, s.upper_percentile)
        # By the reciprocal, as the recommender computes it: a division may differ in the last bit, and so by
        # a millicore.
        floors = np.floor(math.floor(pod_floor * usage.buckets.units) * (1.0 / self._containers_per_pod))
        compute_targets(
            usage.rows,
            usage.buckets,
            self.history,
            quantiles,
            s.margin,
            s.confidence_interval,
            floors,
            answers,
        )
        return TargetRange(lower=answers[0], target=answers[1], upper=answers[2])

    def arrays(self) -> dict[str, Array]:
        return {
            **self.cpu.arrays("cpu."),
            **self.memory.arrays("memory."),
            **{"history." + name: array for name, array in self.history._asdict().items()},
            **{"peaks." + name: array for name, array in self.peaks._asdict().items()},
        }

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        self.cpu.load_arrays("cpu.", arrays)
        self.memory.load_arrays("memory.", arrays)
        self.history = VpaHistory(*(arrays["history." + name] for name in VpaHistory._fields))
        self.peaks = VpaMemoryPeaks(*(arrays["peaks." + name] for name in VpaMemoryPeaks._fields))
