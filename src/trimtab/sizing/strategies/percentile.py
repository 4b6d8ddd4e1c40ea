"""A percentile of the last day times a safety factor: OptiPod's policy, and the easiest one to explain.

`lower` and `upper` are the median and the 99th percentile with the same factor, so that a plausible request
is kept. An OOM kill counts as a sample of what the container had.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field

from trimtab.plugins import Settings
from trimtab.sizing.state import Array, Floats, Indices, scatter_memory
from trimtab.sizing.stats.window import CPU_BUCKETS, MEMORY_BUCKETS, RollingWindow
from trimtab.sizing.strategy import Strategy, TargetRange, Targets


class PercentileSettings(Settings):
    """The settings of `percentile`, with OptiPod's defaults: P90 and a fifth, over a day."""

    usage_factors: ClassVar = {"safety_factor": 0.0}

    quantile: float = Field(default=0.9, gt=0, le=1)
    """The quantile of usage that is requested: 0.5, 0.9, 0.99 or any other; 1 is the maximum."""
    safety_factor: float = Field(default=1.2, ge=1)
    """The factor by which the quantile is multiplied."""
    window: float = Field(default=86400.0, ge=1)
    """Seconds of history that count."""
    slices: int = Field(default=12, ge=2, le=366)
    """The number of slices of the window; it forgets one of them at a time."""
    min_samples: int = Field(default=10, ge=1)
    """The least samples in the window for a recommendation."""


class PercentileStrategy(Strategy[PercentileSettings]):
    """A quantile of a rolling window, with a safety factor."""

    name = "percentile"
    settings_type = PercentileSettings

    def __init__(self, containers: int, settings: PercentileSettings) -> None:
        super().__init__(containers, settings)
        self._cpu = RollingWindow(containers, CPU_BUCKETS, seconds=settings.window, slices=settings.slices)
        self._memory = RollingWindow(
            containers, MEMORY_BUCKETS, seconds=settings.window, slices=settings.slices
        )

    def observe(self, t: float, cpu: Floats, memory: Floats) -> None:
        self._cpu.add(t, cpu)
        self._memory.add(t, memory)

    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None:
        self._memory.add(t, scatter_memory(self.containers, containers, memory))

    def recommend(self, t: float) -> Targets:
        return Targets(cpu=self._compute_range(t, self._cpu), memory=self._compute_range(t, self._memory))

    def _compute_range(self, t: float, window: RollingWindow) -> TargetRange:
        s = self.settings
        lower, target, upper = window.quantiles(
            t, min(0.5, s.quantile), s.quantile, max(0.99, s.quantile)
        ) * np.where(window.sample_counts(t) >= s.min_samples, s.safety_factor, np.nan)
        return TargetRange(lower=lower, target=target, upper=upper)

    def arrays(self) -> dict[str, Array]:
        return self._cpu.arrays("cpu.") | self._memory.arrays("memory.")

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        self._cpu.load_arrays("cpu.", arrays)
        self._memory.load_arrays("memory.", arrays)
