"""Usage as a multiple of a container's first usage, so that large and small containers are treated alike.

Buckets that are the same for all would split the usage of each container at other points, and a choice that
depends on such a point could flip when usage grows by a little. With its own buckets, a container that uses
ten times as much gets exactly ten times the target.
"""

from __future__ import annotations

import numpy as np

from trimtab.sizing.arrays import Floats
from trimtab.sizing.stats.histogram import build_exponential_buckets

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
