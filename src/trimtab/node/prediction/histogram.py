"""A decaying histogram in plain Python, sufficient for one sample a minute.

Like VPA's: buckets grow by 5 %, weights halve with age, and a percentile is the end of its bucket.
`sizing.stats.histogram` does this for a million containers by numba, which would double the agent's memory.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

_RATIO: Final = 1.05
_MAX_HALF_LIVES: Final = 100.0
"""The half-lives after which weights are rescaled, before they overflow."""


@dataclass(frozen=True, slots=True)
class BucketScale:
    """The first bucket's width, the last bucket's value, and the half-life."""

    first_width: float
    max_value: float
    half_life: float

    @property
    def buckets(self) -> int:
        return self.find_bucket(self.max_value) + 1

    def find_bucket(self, value: float) -> int:
        return (
            0
            if value < self.first_width
            else int(math.log(value * (_RATIO - 1) / self.first_width + 1) / math.log(_RATIO))
        )

    def bucket_end(self, bucket: int) -> float:
        end: float = self.first_width * (_RATIO ** (bucket + 1) - 1) / (_RATIO - 1)
        return end


DAY: Final = 86400.0
CPU: Final = BucketScale(first_width=0.01, max_value=1000.0, half_life=DAY)
MEMORY: Final = BucketScale(first_width=1e7, max_value=1e12, half_life=DAY)


class HistogramState(NamedTuple):
    """The persisted form of a histogram."""

    reference: float
    weights: dict[int, float]


class DecayingHistogram:
    """The samples of one quantity."""

    __slots__ = ("_reference", "_scale", "_weights")

    def __init__(self, scale: BucketScale) -> None:
        self._scale = scale
        self._reference = 0.0
        self._weights = array("d", [0.0]) * scale.buckets

    def add(self, t: float, value: float) -> None:
        age = (t - self._reference) / self._scale.half_life
        if not -_MAX_HALF_LIVES <= age <= _MAX_HALF_LIVES:
            factor = 2.0 ** max(-1000.0, -abs(age))  # also for a clock that was far ahead
            self._weights = array("d", (weight * factor for weight in self._weights))
            self._reference, age = t, 0.0
        # A value beyond the scale still counts as large; dropped, it would lower the percentile.
        bucket = min(self._scale.find_bucket(value), len(self._weights) - 1)
        self._weights[bucket] += 2.0**age

    def percentile(self, share: float) -> float | None:
        """Return the end of the bucket with this percentile; None without samples."""
        wanted = share * math.fsum(self._weights)
        if wanted <= 0:
            return None
        passed = 0.0
        for bucket, weight in enumerate(self._weights):
            passed += weight
            # The weights are added in another order than `fsum` adds them: without tolerance, no bucket may
            # reach the total.
            if weight and passed >= wanted * (1 - 1e-9):
                return self._scale.bucket_end(bucket)
        raise AssertionError("unreachable")

    def to_state(self) -> HistogramState:
        return HistogramState(
            self._reference, {place: weight for place, weight in enumerate(self._weights) if weight}
        )

    @classmethod
    def from_state(cls, scale: BucketScale, packed: HistogramState) -> Self:
        made = cls(scale)
        made._reference = packed.reference
        for bucket, weight in packed.weights.items():
            # A single NaN in a damaged file would make every later percentile NaN.
            if 0 <= bucket < len(made._weights) and 0 <= weight < math.inf:
                made._weights[bucket] = weight
        return made
