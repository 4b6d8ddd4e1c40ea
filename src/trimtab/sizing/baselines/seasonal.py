"""Request what the coming hour needed before: at the same time of day, or of the week, or of any other
period.

Usage is kept by the hour: near its 90th percentile for CPU, its highest for memory. Once a day the period of
each container is searched in that (`periods`). A container with a period is sized by the same hours of
earlier cycles, and the hours beside them, raised if it recently used more than they show. One without a
period is sized by its last day.

`lower` is the median of the same hours and `upper` the highest of all that is remembered, with the same
margin. After an OOM kill, for two days the target is at least what was too little, and a tenth more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
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
from trimtab.sizing.stats.periods import find_periods
from trimtab.sizing.stats.window import RollingMaxima
from trimtab.sizing.strategy import Strategy, TargetRange, Targets, Traits

HOUR, DAY = 3600.0, 86400.0
P90_DEVIATIONS = 1.28
"""The standard deviations from a mean to the 90th percentile of a nearly normal distribution."""
RECENT_BINS = 3
"""The number of bins that compare usage now with earlier usage."""
MAX_GROWTH = 3.0
OOM_WINDOW, OOM_SLICES, OOM_MARGIN = 2 * DAY, 8, 1.1


class SeasonalSettings(Settings):
    """The settings of `seasonal`: how long it remembers, and its margins."""

    usage_factors: ClassVar = {"cpu_margin": 1.0, "memory_margin": 1.0}

    bin: float = Field(default=HOUR, ge=60)
    """Seconds of one bin, which is kept as one number."""
    memory: int = Field(default=21 * 24, ge=8, le=10_000)
    """The number of bins that are kept; half of them is the longest period that can be found."""
    horizon: float = Field(default=HOUR, gt=0, le=7 * DAY)
    """Seconds ahead that a recommendation must hold: the time to the next."""
    quantile: float = Field(default=0.9, ge=0.5, le=1)
    """The quantile of the same hours, or of the last day, that is requested."""
    cpu_margin: float = Field(default=0.1, ge=0)
    """The margin that is added to CPU, as a fraction."""
    memory_margin: float = Field(default=0.15, ge=0)
    """The margin that is added to memory, as a fraction."""
    strength: float = Field(default=0.4, gt=0, lt=1)
    """The autocorrelation from which a container has a period."""
    shortest: int = Field(default=4, ge=2)
    """The bins of the shortest period."""
    fallback: int = Field(default=24, ge=1, le=1_000_000)
    """The bins by which a container without a period is sized."""
    min_bins: int = Field(default=2, ge=1)
    """The least bins for a recommendation."""


class OpenBin(NamedTuple):
    """The sums of the bin that is being filled."""

    samples: npt.NDArray[np.int64]
    total: Floats
    squares: Floats
    peak: Floats


class ForecastRequest(NamedTuple):
    """The question to the bins."""

    now: int
    """The number of the bin that is being filled; all earlier ones are known."""
    first: int
    """The first bin of the forecast."""
    bins: int
    """The number of bins of the forecast."""
    quantile: float
    fallback: int


@kernel(error_model="numpy")
def forecast_rows(
    history: npt.NDArray[np.float32],
    periods: npt.NDArray[np.int64],
    request: ForecastRequest,
    answers: Floats,
) -> None:
    """Compute median and target of each row from its bins; rows without data are skipped."""
    values = np.empty(3 * history.shape[1] + 3)
    for row in range(history.shape[0]):
        middle, target = -1.0, -1.0
        if periods[row] > 0:
            raised = compute_growth(history[row], request.now, periods[row], values)
            for bin_ in range(request.first, request.first + request.bins):
                size = gather_same_phase(history[row], request.now, request.now, bin_, periods[row], values)
                if size:
                    middle = max(middle, pick_quantile(values, size, 0.5) * raised)
                    target = max(target, pick_quantile(values, size, request.quantile) * raised)
        if target < 0.0:
            size = gather_last_bins(history[row], request.now, request.fallback, values)
            if size:
                middle, target = (
                    pick_quantile(values, size, 0.5),
                    pick_quantile(values, size, request.quantile),
                )
        if target >= 0.0:
            answers[0, row] = middle
            answers[1, row] = target


@kernel(error_model="numpy")
def pick_quantile(values: Floats, size: int, quantile: float) -> float:
    """Return a quantile of the first `size` values: one of them, the higher if it lies between two."""
    return float(np.sort(values[:size])[math.ceil((size - 1) * quantile)])


@kernel(error_model="numpy")
def gather_last_bins(history: npt.NDArray[np.float32], now: int, count: int, values: Floats) -> int:
    """Gather the last bins, or the last known one if they are all empty; return their number."""
    kept, size = history.size, 0
    for back in range(1, kept + 1):
        if back > count and size:
            break
        value = history[(now - back) % kept]
        if not np.isnan(value):
            values[size] = value
            size += 1
    return size


@kernel(error_model="numpy")
def gather_same_phase(
    history: npt.NDArray[np.float32], now: int, before: int, bin_: int, period: int, values: Floats
) -> int:
    """Gather the usage in the same bins of earlier cycles, and beside them, up to a bin; return their number."""
    kept, size = history.size, 0
    for turn in range(1, kept // period + 2):
        for beside in range(-1, 2):
            at = bin_ - turn * period + beside
            if now - kept <= at < before and not np.isnan(history[at % kept]):
                values[size] = history[at % kept]
                size += 1
    return size


@kernel(error_model="numpy")
def compute_growth(history: npt.NDArray[np.float32], now: int, period: int, values: Floats) -> float:
    """Return the factor by which the last bins were above their same bins; 1 if they were not."""
    kept = history.size
    used, expected = 0.0, 0.0
    for back in range(1, RECENT_BINS + 1):
        value = history[(now - back) % kept]
        size = gather_same_phase(history, now, now - back, now - back, period, values)
        if size and not np.isnan(value):
            used += value
            expected += values[:size].mean()
    if expected <= 0.0:
        return 1.0
    return float(min(max(used / expected, 1.0), MAX_GROWTH))


class BinnedUsage:
    """One resource of all containers, by bins."""

    def __init__(self, rows: int, settings: SeasonalSettings, *, most: float, by_peak: bool) -> None:
        self._most, self._by_peak = most, by_peak
        self._settings = settings
        self.history = np.full((rows, settings.memory), np.nan, np.float32)
        self.periods = np.zeros(rows, np.int64)
        self.bin = OpenBin(np.zeros(rows, np.int64), np.zeros(rows), np.zeros(rows), np.zeros(rows))

    def add(self, values: Floats) -> None:
        believed = (values >= 0.0) & (values <= self._most)
        value = np.where(believed, values, 0.0)
        count, total, squares, peak = self.bin
        count += believed
        total += value
        squares += value * value
        np.maximum(peak, value, out=peak)

    def close_bin(self, number: int) -> None:
        """Store the bin that is being filled under this number, and start an empty one."""
        count, total, squares, peak = self.bin
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = total / count
            high = mean + P90_DEVIATIONS * np.sqrt(np.maximum(squares / count - mean * mean, 0.0))
        made = peak if self._by_peak else np.minimum(high, peak)
        self.history[:, number % self.history.shape[1]] = np.where(count > 0, made, np.nan)
        for array in self.bin:
            array[:] = 0

    def skip_bin(self, number: int) -> None:
        """Record that the bin of this number has no samples."""
        self.history[:, number % self.history.shape[1]] = np.nan

    def update_periods(self, now: int) -> None:
        """Find each row's period; `now` is the number of the next bin."""
        s = self._settings
        oldest_first = np.roll(self.history, -(now % self.history.shape[1]), axis=1)
        heard = np.isfinite(oldest_first).any(axis=0)
        start = int(heard.argmax()) if heard.any() else 0
        self.periods = find_periods(oldest_first[:, start:], least=s.shortest, strength=s.strength)

    def compute_range(self, now: int, t: float, margin: float) -> TargetRange:
        s = self._settings
        first = max(now, math.floor(t / s.bin))
        count = max(now, math.floor((t + s.horizon) / s.bin)) - first + 1
        answers = np.full((2, self.periods.size), np.nan)
        forecast_rows(
            self.history, self.periods, ForecastRequest(now, first, count, s.quantile, s.fallback), answers
        )
        known = np.isfinite(self.history).sum(axis=1) >= s.min_bins
        lower, target = answers * np.where(known, 1.0 + margin, np.nan)
        highest = np.fmax.reduce(self.history, axis=1, initial=0.0).astype(np.float64)
        return TargetRange(lower=lower, target=target, upper=np.maximum(target, highest * (1.0 + margin)))

    def arrays(self, prefix: str) -> dict[str, Array]:
        own: dict[str, Array] = {
            prefix + "history": self.history,
            prefix + "periods": self.periods,
        }
        return own | {f"{prefix}bin.{name}": array for name, array in self.bin._asdict().items()}

    def load_arrays(self, prefix: str, arrays: Mapping[str, Array]) -> None:
        periods = arrays[prefix + "periods"]
        if periods.min(initial=0) < 0 or periods.max(initial=0) > self._settings.memory:
            raise ValueError(f"state: {prefix}periods are not in order")
        self.history, self.periods = arrays[prefix + "history"], periods
        self.bin = OpenBin(*(arrays[f"{prefix}bin.{name}"] for name in OpenBin._fields))


class SeasonalStrategy(Strategy[SeasonalSettings]):
    """Sizes a container as at the same time of earlier cycles."""

    name = "seasonal"
    settings_type = SeasonalSettings
    traits = Traits(counts_samples=False, is_baseline=True)  # Bins of an hour count, not samples.

    def __init__(self, containers: int, settings: SeasonalSettings) -> None:
        super().__init__(containers, settings)
        self._cpu = BinnedUsage(containers, settings, most=MAX_PLAUSIBLE_CPU, by_peak=False)
        self._memory = BinnedUsage(containers, settings, most=MAX_PLAUSIBLE_MEMORY, by_peak=True)
        self._ooms = RollingMaxima(containers, seconds=OOM_WINDOW, slices=OOM_SLICES)
        self._clock = np.array([-1, 0])
        """The number of the bin that is being filled (-1 before the first), and of the bin at which periods
        are due.
        """

    def observe(self, t: float, cpu: Floats, memory: Floats) -> None:
        self._advance(math.floor(t / self.settings.bin))
        self._cpu.add(cpu)
        self._memory.add(memory)

    def _advance(self, number: int) -> None:
        current, due = map(int, self._clock)
        if number <= current:
            return
        if current >= 0:
            for usage in (self._cpu, self._memory):
                usage.close_bin(current)
                for skipped in range(max(current + 1, number - self.settings.memory), number):
                    usage.skip_bin(skipped)
                if number >= due:
                    usage.update_periods(number)
        self._clock[:] = (
            number,
            max(due, number + math.ceil(DAY / self.settings.bin)) if number >= due else due,
        )

    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None:
        had = scatter_memory(self.containers, containers, memory)
        # A kill of an earlier bin does not belong to this one.
        if math.floor(t / self.settings.bin) >= self._clock[0]:
            self._memory.add(had)
        self._ooms.add(t, had, MAX_PLAUSIBLE_MEMORY)

    def recommend(self, t: float) -> Targets:
        now = max(int(self._clock[0]), 0)
        memory = self._memory.compute_range(now, t, self.settings.memory_margin)
        least = np.nan_to_num(self._ooms.peak(t)) * OOM_MARGIN
        lower, target, upper = (
            np.maximum(bound, least) for bound in (memory.lower, memory.target, memory.upper)
        )
        return Targets(
            cpu=self._cpu.compute_range(now, t, self.settings.cpu_margin),
            memory=TargetRange(lower=lower, target=target, upper=upper),
        )

    def arrays(self) -> dict[str, Array]:
        usage = self._cpu.arrays("cpu.") | self._memory.arrays("memory.")
        return usage | self._ooms.arrays("ooms.") | {"clock": self._clock}

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        self._cpu.load_arrays("cpu.", arrays)
        self._memory.load_arrays("memory.", arrays)
        self._ooms.load_arrays("ooms.", arrays)
        self._clock = arrays["clock"]
