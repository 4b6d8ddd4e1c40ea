"""Usage as a multiple of what a container first used, so that large and small are learned from alike.

A grid of buckets that is the same for all would cut the usage of each container at other places, and a choice that
hangs on such a cut could turn when usage grows by a little. On a grid of its own, a container that uses ten times as
much gets exactly ten times the answer.
"""

from __future__ import annotations

import numpy as np

from trimtab.sizing.stats.histogram import build_exponential_buckets
from trimtab.sizing.strategy import Floats

BUCKETS = build_exponential_buckets(first=1e-3, growth=0.02, most=1e5, units=1e9)
"""2 % wide where usage is near what it was at first."""
MIN_CPU_UNIT, MIN_MEMORY_UNIT = 1e-3, 2.0**20
"""What a container is said to have used at first where it used less."""


class UsageScaler:
    """What each row is a multiple of."""

    def __init__(self, rows: int, *, least: float, most: float) -> None:
        self.unit = np.full(rows, np.nan)
        self._least, self._most = least, most

    def to_multiples(self, values: Floats) -> Floats:
        """Values as multiples; NaN for what is not believed. A row's first sample is its unit."""
        believed = np.where((values >= 0.0) & (values <= self._most), values, np.nan)
        new = np.isnan(self.unit) & ~np.isnan(believed)
        self.unit[new] = np.maximum(believed[new], self._least)
        multiples: Floats = believed / self.unit
        return multiples
