"""Koordlet's peak predictor: a high percentile of a decaying histogram and a margin.

A container has no recommendation in its first day. `lower` and `upper` are the 60th percentile and the
highest bucket, the ends of the range of peaks that koordlet reports. An OOM kill counts as a sample of what
the container had.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field

from trimtab.plugins import Settings
from trimtab.sizing.state import (
    MAX_PLAUSIBLE_CPU,
    MAX_PLAUSIBLE_MEMORY,
    Array,
    Floats,
    Indices,
    scatter_memory,
)
from trimtab.sizing.stats.histogram import Histogram, build_exponential_buckets, find_buckets
from trimtab.sizing.strategy import Strategy, TargetRange, Targets, Traits

HOUR = 3600.0
LOW_QUANTILE = 0.6

CPU_BUCKETS = build_exponential_buckets(first=0.025, growth=0.05, most=1024.0, units=1e6)
MEMORY_BUCKETS = build_exponential_buckets(first=5 * 2.0**20, growth=0.05, most=2.0**40, units=1.0)


class PeakSettings(Settings):
    """The settings of `peak`, with koordlet's defaults."""

    usage_factors: ClassVar = {"margin": 1.0}

    cpu_quantile: float = Field(default=0.95, ge=LOW_QUANTILE, le=1)
    """The quantile of CPU usage that counts as its peak."""
    memory_quantile: float = Field(default=0.98, ge=LOW_QUANTILE, le=1)
    """The quantile of memory usage that counts as its peak."""
    margin: float = Field(default=0.1, ge=0)
    """The margin that is added, as a fraction."""
    cpu_half_life: float = Field(default=12 * HOUR, ge=1)
    """Seconds in which a CPU sample loses half its weight."""
    memory_half_life: float = Field(default=24 * HOUR, ge=1)
    """Seconds in which a memory sample loses half its weight."""
    cold_start: float = Field(default=24 * HOUR, ge=0)
    """Seconds after a container's first sample without a recommendation."""


class PeakStrategy(Strategy[PeakSettings]):
    """Koordlet's predictor of peaks."""

    name = "peak"
    settings_type = PeakSettings
    traits = Traits(is_baseline=True)

    def __init__(self, containers: int, settings: PeakSettings) -> None:
        super().__init__(containers, settings)
        self._cpu = Histogram(containers, CPU_BUCKETS, settings.cpu_half_life)
        self._memory = Histogram(containers, MEMORY_BUCKETS, settings.memory_half_life)
        self._since = np.full((2, containers), np.inf)
        """The times of the first samples of CPU and memory."""

    def observe(self, t: float, cpu: Floats, memory: Floats) -> None:
        self._add(0, self._cpu, t, cpu, MAX_PLAUSIBLE_CPU)
        self._add(1, self._memory, t, memory, MAX_PLAUSIBLE_MEMORY)

    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None:
        self._add(
            1, self._memory, t, scatter_memory(self.containers, containers, memory), MAX_PLAUSIBLE_MEMORY
        )

    def _add(self, which: int, usage: Histogram, t: float, values: Floats, most: float) -> None:
        usage.add(t, find_buckets(usage.buckets, values, most))
        seen = (values >= 0.0) & (values <= most)
        self._since[which, seen] = np.minimum(self._since[which, seen], t)

    def recommend(self, t: float) -> Targets:
        s = self.settings
        return Targets(
            cpu=self._compute_range(t, self._cpu, self._since[0], s.cpu_quantile),
            memory=self._compute_range(t, self._memory, self._since[1], s.memory_quantile),
        )

    def _compute_range(self, t: float, usage: Histogram, since: Floats, quantile: float) -> TargetRange:
        warm = np.where(t - since >= self.settings.cold_start, 1.0 + self.settings.margin, np.nan)
        lower, target, upper = usage.percentiles((LOW_QUANTILE, quantile, 1.0)) * warm
        return TargetRange(lower=lower, target=target, upper=upper)

    def arrays(self) -> dict[str, Array]:
        return self._cpu.arrays("cpu.") | self._memory.arrays("memory.") | {"since": self._since}

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        self._cpu.load_arrays("cpu.", arrays)
        self._memory.load_arrays("memory.", arrays)
        self._since = arrays["since"]
