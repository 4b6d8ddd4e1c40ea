"""Robusta's KRR (its strategy "simple"): P95 of two weeks for CPU, the highest and a buffer for memory.

As in KRR, a container's CPU is the highest of the P95 of each of its pods, also of those that ended; the points that it
requires are those of all pods. A row counts the samples of one pod; when another follows in it, only the P95 of the
first is kept, until the window ends.

KRR gives one number. Here `lower` and `upper` bound the range that is not worth a change: for CPU between
P66, which is KRR's own request if it also sets a limit, and the highest sample; for memory between the
highest sample and that with twice the buffer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field

from trimtab.api.quantity import MIB
from trimtab.plugins import Settings
from trimtab.sizing.state import (
    MAX_PLAUSIBLE_CPU,
    MAX_PLAUSIBLE_MEMORY,
    Array,
    Floats,
    Indices,
    scatter_memory,
)
from trimtab.sizing.stats.window import CPU_BUCKETS, MEMORY_BUCKETS, RollingMaxima, RollingWindow
from trimtab.sizing.strategy import Strategy, TargetRange, Targets, Traits

MILLICORE = 1e-3
LOW_QUANTILE = 0.66
ROUNDING_TOLERANCE = 1e-9
"""The rounding error below which a whole number of steps is not rounded up to the next."""


class KrrSettings(Settings):
    """The settings of `krr`, with its defaults."""

    usage_factors: ClassVar = {"memory_buffer": 1.0, "oom_buffer": 1.0}

    cpu_quantile: float = Field(default=0.95, gt=0, le=1)
    """The quantile of CPU usage that is requested."""
    memory_buffer: float = Field(default=0.15, ge=0)
    """The buffer above the highest memory usage, as a fraction."""
    oom_buffer: float = Field(default=0.25, ge=0)
    """The buffer above the memory at which a container was killed, as a fraction."""
    use_oom: bool = True
    """Use OOM kills. KRR's own default is not to."""
    window: float = Field(default=14 * 86400.0, ge=1)
    """Seconds of history that count."""
    slices: int = Field(default=14, ge=2, le=366)
    """The number of slices of the window; it forgets one of them at a time."""
    min_samples: int = Field(default=100, ge=1, le=1_000_000_000)
    """The least samples in the window for a recommendation."""
    min_cpu: float = Field(default=0.01, ge=0)
    """The least cores of a request."""
    min_memory: float = Field(default=100.0 * MIB, ge=0)
    """The least bytes of a request."""
    step: float = Field(default=75.0, ge=1)
    """The seconds from sample to sample, over which `trimtab scan` averages CPU; the operator uses its `learning.step`."""
    allow_hpa: bool = False
    """Size a resource even if an HPA scales by its utilization."""


def round_up_to(values: Floats, step: float) -> Floats:
    steps: Floats = np.ceil(values / step - ROUNDING_TOLERANCE)
    return steps * step


class KrrStrategy(Strategy[KrrSettings]):
    """KRR's simple strategy."""

    name = "krr"
    settings_type = KrrSettings
    traits = Traits(is_baseline=True, separates_pods=True)
    added_arrays = frozenset({"ended.epoch", "ended.peaks"})

    def __init__(self, containers: int, settings: KrrSettings) -> None:
        super().__init__(containers, settings)
        seconds, slices = settings.window, settings.slices
        self._cpu = RollingWindow(containers, CPU_BUCKETS, seconds=seconds, slices=slices)
        self._memory = RollingWindow(containers, MEMORY_BUCKETS, seconds=seconds, slices=slices)
        self._ooms = RollingMaxima(containers, seconds=seconds, slices=slices)
        self._ended = RollingMaxima(containers, seconds=seconds, slices=slices)
        self._first_rows = np.arange(containers)
        self.traits = type(self).traits._replace(
            sample_seconds=settings.step, leaves_autoscaled=not settings.allow_hpa
        )

    def share_rows(self, containers: Indices) -> None:
        self._first_rows = containers

    def restart_rows(self, t: float, rows: Indices) -> None:
        ended = self._cpu.interpolated_quantile(t, self.settings.cpu_quantile, rows)
        self._ended.add(t, ended, MAX_PLAUSIBLE_CPU)
        self._cpu.clear(rows)

    def observe(self, t: float, cpu: Floats, memory: Floats) -> None:
        self._cpu.add(t, cpu)
        self._memory.add(t, memory)

    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None:
        if self.settings.use_oom:
            self._ooms.add(t, scatter_memory(self.containers, containers, memory), MAX_PLAUSIBLE_MEMORY)

    def recommend(self, t: float) -> Targets:
        return Targets(cpu=self._compute_cpu_range(t), memory=self._compute_memory_range(t))

    def _compute_cpu_range(self, t: float) -> TargetRange:
        s = self.settings
        enough = self._has_enough_points(t)
        low, target = (
            self._cpu.interpolated_quantile(t, quantile)
            for quantile in (min(LOW_QUANTILE, s.cpu_quantile), s.cpu_quantile)
        )
        target = self._max_of_pods(np.fmax(target, self._ended.peak(t))) * enough
        low = np.fmin(self._max_of_pods(low), target)
        target = round_up_to(np.maximum(target, s.min_cpu), MILLICORE)
        low = round_up_to(np.maximum(low, s.min_cpu), MILLICORE)
        high = round_up_to(np.maximum(self._max_of_pods(self._cpu.peak(t)), target), MILLICORE)
        return TargetRange(lower=low, target=target, upper=high)

    def _has_enough_points(self, t: float) -> Floats:
        """Return 1 for each row of a container with enough points of all its pods, otherwise NaN."""
        # The samples of CPU are those of the present pods, and a rate needs two: memory has one at each point.
        points = np.maximum(self._cpu.sample_counts(t), self._memory.sample_counts(t))
        of_all = np.bincount(self._first_rows, weights=points, minlength=self.containers)
        return np.where(of_all >= self.settings.min_samples, 1.0, np.nan)[self._first_rows]

    def _max_of_pods(self, values: Floats) -> Floats:
        """Return the highest value of the rows of each container, in each of them."""
        highest = np.full(self.containers, np.nan)
        np.fmax.at(highest, self._first_rows, values)
        return highest[self._first_rows]

    def _compute_memory_range(self, t: float) -> TargetRange:
        s = self.settings
        peak = self._max_of_pods(self._memory.peak(t)) * self._has_enough_points(t)
        oom = self._max_of_pods(np.nan_to_num(self._ooms.peak(t))) * (1.0 + s.oom_buffer)
        low, target, high = (
            round_up_to(
                np.clip(np.maximum(peak * (1.0 + buffer), oom), s.min_memory, MAX_PLAUSIBLE_MEMORY), MIB
            )
            for buffer in (0.0, s.memory_buffer, 2 * s.memory_buffer)
        )
        return TargetRange(lower=low, target=target, upper=high)

    def arrays(self) -> dict[str, Array]:
        windows = self._cpu.arrays("cpu.") | self._memory.arrays("memory.")
        return windows | self._ooms.arrays("ooms.") | self._ended.arrays("ended.")

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        self._cpu.load_arrays("cpu.", arrays)
        self._memory.load_arrays("memory.", arrays)
        self._ooms.load_arrays("ooms.", arrays)
        if "ended.epoch" in arrays:
            self._ended.load_arrays("ended.", arrays)
