"""The moving window of Google's Autopilot (Rzadca et al., EuroSys 2020, section 3.2.2).

Usage is a histogram whose weights halve every 12 hours for CPU and every 48 for memory. CPU is a percentile
of the load, not of time: a sample counts by its amount, so that the share of served work is kept. Memory
depends on the tolerance of OOM kills: the highest of the window, a percentile of the load, or something
between. A margin is added.

The paper also takes the highest answer of the last hour; that is left to the loop around a strategy. `lower`
and `upper` are the middle and the careful end of the paper's own range: the load's median and the highest
sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar

import numpy as np
from pydantic import Field

from trimtab.kernel import kernel
from trimtab.plugins import Settings
from trimtab.sizing.state import (
    MAX_PLAUSIBLE_CPU,
    MAX_PLAUSIBLE_MEMORY,
    Array,
    Floats,
    Indices,
    scatter_memory,
)
from trimtab.sizing.stats.histogram import (
    MASK,
    SHIFT,
    Histogram,
    HistogramRows,
    build_exponential_buckets,
    find_buckets,
)
from trimtab.sizing.stats.window import RollingMaxima
from trimtab.sizing.strategy import Strategy, TargetRange, Targets, Traits

BUCKETS = build_exponential_buckets(first=1e-3, growth=0.02, most=1e5, units=1e9)
"""The buckets of multiples, 2 % wide where usage is near the first one."""
MIN_CPU_UNIT, MIN_MEMORY_UNIT = 1e-3, 2.0**20
"""The least first usage of a container, in cores and bytes."""


class UsageScaler:
    """Converts the usage of each row to multiples of its unit."""

    def __init__(self, rows: int, *, least: float, most: float) -> None:
        self.unit = np.full(rows, np.nan)
        self._least, self._most = least, most

    def to_multiples(self, values: Floats) -> Floats:
        """Return values as multiples; NaN for implausible ones. A row's first sample is its unit."""
        believed = np.where((values >= 0.0) & (values <= self._most), values, np.nan)
        new = np.isnan(self.unit) & ~np.isnan(believed)
        self.unit[new] = np.maximum(believed[new], self._least)
        multiples: Floats = believed / self.unit
        return multiples


HOUR = 3600.0
SLICES = 12


class OomTolerance(StrEnum):
    """The tolerance of a workload for OOM kills."""

    MINIMAL = "minimal"
    LOW = "low"
    INTERMEDIATE = "intermediate"


class AutopilotWindowSettings(Settings):
    """The settings of `autopilot-window`, with the paper's values where it gives them."""

    usage_factors: ClassVar = {"margin": 1.0}

    cpu_quantile: float = Field(default=0.95, ge=0.5, le=1)
    """The share of the CPU load that is served within the request."""
    oom_tolerance: OomTolerance = OomTolerance.LOW
    """The basis of memory. minimal: the highest of the window; low: its 98th percentile by
    load; intermediate: its 60th, or half of the highest.
    """
    margin: float = Field(default=0.1, ge=0)
    """The margin that is added, as a fraction; the paper says 10 to 15 %."""
    cpu_half_life: float = Field(default=12 * HOUR, ge=1)
    """Seconds in which a CPU sample loses half its weight."""
    memory_half_life: float = Field(default=48 * HOUR, ge=1)
    """Seconds in which a memory sample loses half its weight."""
    peak_window: float = Field(default=48 * HOUR, ge=1)
    """Seconds of the window of the highest sample."""
    min_samples: int = Field(default=10, ge=1)
    """The least samples for a recommendation."""


@kernel(error_model="numpy")
def compute_load_percentiles(
    rows: HistogramRows, ends: Floats, quantiles: tuple[float, float, float], answers: Floats
) -> None:
    """Compute three ascending quantiles of each row's load: a bucket weighs its content times its end."""
    pages, pool = rows.pages, rows.pool
    for row in range(rows.total.size):
        low, high = int(rows.low[row]), int(rows.high[row])
        total = 0.0
        for bucket in range(low, high + 1):
            total += pool[pages[row, bucket >> SHIFT], bucket & MASK] * ends[bucket]
        passed, which = 0.0, 0
        for bucket in range(low, high + 1):
            passed += pool[pages[row, bucket >> SHIFT], bucket & MASK] * ends[bucket]
            while which < 3 and passed > 0.0 and (passed >= quantiles[which] * total or bucket == high):
                answers[which, row] = ends[bucket]
                which += 1


class LoadHistogram:
    """One resource of all containers."""

    def __init__(
        self, rows: int, settings: AutopilotWindowSettings, *, half_life: float, least: float, most: float
    ) -> None:
        self.most = most
        self.scaler = UsageScaler(rows, least=least, most=most)
        self.histogram = Histogram(rows, BUCKETS, half_life)
        self.maxima = RollingMaxima(rows, seconds=settings.peak_window, slices=SLICES)
        self.samples = np.zeros(rows, np.int64)

    def add(self, t: float, values: Floats) -> None:
        multiples = self.scaler.to_multiples(values)
        self.histogram.add(t, find_buckets(BUCKETS, multiples, np.inf))
        self.maxima.add(t, values, self.most)
        self.samples += ~np.isnan(multiples)

    def compute_load_quantiles(self, *quantiles: float) -> Floats:
        """Return three quantiles of the load."""
        low, middle, high = quantiles
        answers = np.full((3, self.samples.size), np.nan)
        compute_load_percentiles(self.histogram.rows, BUCKETS.ends, (low, middle, high), answers)
        answers *= self.scaler.unit
        return answers

    def arrays(self, prefix: str) -> dict[str, Array]:
        own = {prefix + "unit": self.scaler.unit, prefix + "samples": self.samples}
        return self.histogram.arrays(prefix) | self.maxima.arrays(prefix) | own

    def load_arrays(self, prefix: str, arrays: Mapping[str, Array]) -> None:
        self.histogram.load_arrays(prefix, arrays)
        self.maxima.load_arrays(prefix, arrays)
        self.scaler.unit, self.samples = arrays[prefix + "unit"], arrays[prefix + "samples"]


class AutopilotWindowStrategy(Strategy[AutopilotWindowSettings]):
    """Autopilot's moving window."""

    name = "autopilot-window"
    settings_type = AutopilotWindowSettings
    traits = Traits(is_baseline=True)

    def __init__(self, containers: int, settings: AutopilotWindowSettings) -> None:
        super().__init__(containers, settings)
        self._cpu = LoadHistogram(
            containers, settings, half_life=settings.cpu_half_life, least=MIN_CPU_UNIT, most=MAX_PLAUSIBLE_CPU
        )
        self._memory = LoadHistogram(
            containers,
            settings,
            half_life=settings.memory_half_life,
            least=MIN_MEMORY_UNIT,
            most=MAX_PLAUSIBLE_MEMORY,
        )

    def observe(self, t: float, cpu: Floats, memory: Floats) -> None:
        self._cpu.add(t, cpu)
        self._memory.add(t, memory)

    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None:
        self._memory.add(t, scatter_memory(self.containers, containers, memory))

    def recommend(self, t: float) -> Targets:
        return Targets(cpu=self._compute_cpu_range(t), memory=self._compute_memory_range(t))

    def _compute_cpu_range(self, t: float) -> TargetRange:
        low, target, _ = self._cpu.compute_load_quantiles(0.5, self.settings.cpu_quantile, 1.0)
        return self._compute_range(self._cpu, low, target, np.fmax(self._cpu.maxima.peak(t), target))

    def _compute_memory_range(self, t: float) -> TargetRange:
        low, middle, high = self._memory.compute_load_quantiles(0.5, 0.6, 0.98)
        peak = self._memory.maxima.peak(t)
        target = {
            OomTolerance.MINIMAL: np.fmax(peak, low),
            OomTolerance.LOW: high,
            OomTolerance.INTERMEDIATE: np.fmax(middle, 0.5 * peak),
        }[self.settings.oom_tolerance]
        return self._compute_range(self._memory, low, target, np.fmax(peak, target))

    def _compute_range(self, usage: LoadHistogram, *bounds: Floats) -> TargetRange:
        enough = usage.samples >= self.settings.min_samples
        factor = np.where(enough, 1.0 + self.settings.margin, np.nan)
        lower, target, upper = (bound * factor for bound in bounds)
        return TargetRange(lower=lower, target=target, upper=upper)

    def arrays(self) -> dict[str, Array]:
        return self._cpu.arrays("cpu.") | self._memory.arrays("memory.")

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        self._cpu.load_arrays("cpu.", arrays)
        self._memory.load_arrays("memory.", arrays)
