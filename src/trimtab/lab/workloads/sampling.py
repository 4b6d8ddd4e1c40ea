"""The sampling that generators share: one time grid for all series, and a seeded random generator.

Everything is drawn for all series at once. Each array is [series, steps], or has one of the two to spread out along.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trimtab.lab.workloads.workload import MONDAY
from trimtab.usage.trace import Floats

DAY, WEEK = 86400.0, 7 * 86400.0
MAX_CELLS = 2**28
"""The limit of all series together: 2 GiB an array."""


class Sampler:
    """A random generator for this many series of this many steps."""

    def __init__(self, *, series: int, steps: int, step: float, seed: int) -> None:
        self.series, self.steps, self.step = series, steps, step
        self.rng = np.random.default_rng(seed)
        self.seconds: Floats = np.arange(steps, dtype=np.float64) * step
        """Since the start, which is a Monday's midnight."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.series, self.steps

    @property
    def is_weekend(self) -> npt.NDArray[np.bool_]:
        return ((self.seconds + MONDAY) // DAY + 3) % 7 >= 5  # the first day of all time was a Thursday

    def table_shape(self, number: npt.NDArray[np.int64]) -> tuple[int, int]:
        """Return the shape of a table with a row for each series and a column for each of these numbers, as far as it
        fits.
        """
        turns = int(number.max()) + 1
        if self.series * turns > MAX_CELLS:
            raise MemoryError(f"{self.series:,} series of {turns:,} draws do not fit into memory")
        return self.series, turns

    def draw_uniform(self, low: float = 0.0, high: float = 1.0) -> Floats:
        """Draw a uniform number for each series."""
        return self.rng.uniform(low, high, (self.series, 1))

    def draw_sizes(self, spread: float) -> Floats:
        """Return the size of each series relative to the typical one: a log-normal factor with median 1."""
        return np.exp(spread * self.rng.standard_normal((self.series, 1)))

    def draw_noise(self, share: float) -> Floats:
        """Draw a factor for each sample, log-normal with mean 1; `share` is its standard deviation."""
        width = np.sqrt(np.log1p(share**2))
        factors: Floats = np.exp(width * self.rng.standard_normal(self.shape) - width**2 / 2)
        return factors

    def draw_autocorrelated(self, correlation: Floats | float) -> Floats:
        """Draw unit normal noise in which `memory` is the correlation of a step with the next, for each series."""
        kept = np.broadcast_to(np.asarray(correlation, float).reshape(-1), (self.series,))
        fresh = np.sqrt(1 - kept**2)
        steps = self.rng.standard_normal((self.steps, self.series))  # a row a step: it is walked along time
        for now in range(1, self.steps):
            steps[now] *= fresh
            steps[now] += kept * steps[now - 1]
        return np.ascontiguousarray(steps.T)

    def draw_stretches(self, hold: float, *, regular: bool) -> npt.NDArray[np.int64]:
        """Return the stretch that each sample is in, from 0: of `hold` seconds each, or of that length on average."""
        if regular:
            number = (self.seconds / hold + 1e-9).astype(np.int64)
            return np.broadcast_to(number, self.shape)
        ends = self.rng.random(self.shape) < min(1.0, self.step / hold)
        ends[:, 0] = False
        return np.cumsum(ends, axis=1)

    def draw_levels(self, stretch: npt.NDArray[np.int64], low: float, high: float) -> Floats:
        """Draw a level for each interval, uniformly between the two."""
        table = self.rng.uniform(low, high, self.table_shape(stretch))
        return np.take_along_axis(table, stretch, axis=1)

    def daily_curve(self, *, peak_hour: float, sharpness: float = 1.0) -> Floats:
        """Return the level of the day, 0 to 1, highest at `peak_hour`; the sharper, the shorter the peak."""
        turn = 2 * np.pi * (self.seconds / DAY - peak_hour / 24)
        risen: Floats = (0.5 + 0.5 * np.cos(turn)) ** sharpness
        return risen
