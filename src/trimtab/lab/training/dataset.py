"""What a forecaster learns from: what was known of a container at the end of an hour, and what the next hour brought."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.lab.neural.features import FARTHEST, FEATURES, HOUR, Record
from trimtab.sizing.stats.plausibility import CPU_MOST, MEMORY_MOST
from trimtab.usage.trace import Floats, Trace

Singles = npt.NDArray[np.float32]
SAMPLES = 12
"""Samples of the next hour that are looked at."""


class Examples(NamedTuple):
    """Features, and the logarithms of what came, divided by the level; NaN where there was no sample."""

    shown: Singles
    came: Singles

    @classmethod
    def none(cls) -> Examples:
        return cls(np.empty((0, FEATURES), np.float32), np.empty((0, SAMPLES), np.float32))

    @classmethod
    def joined(cls, parts: list[Examples]) -> Examples:
        return cls(
            np.concatenate([part.shown for part in parts]), np.concatenate([part.came for part in parts])
        )

    def some(self, chance: np.random.Generator, most: int) -> Examples:
        if len(self.shown) <= most:
            return self
        rows = np.sort(chance.choice(len(self.shown), most, replace=False))
        return Examples(self.shown[rows], self.came[rows])


def examples(trace: Trace, *, seed: int, most: int) -> tuple[Examples, Examples]:
    """At most so many examples of CPU, and of memory (of which the hour's peak counts)."""
    chance = np.random.default_rng(seed)
    cpu = _of(trace, trace.cpu, chance, limit=CPU_MOST, peaks=False, most=most)
    memory = _of(trace, trace.memory, chance, limit=MEMORY_MOST, peaks=True, most=most)
    return cpu, memory


def _of(
    trace: Trace, usage: Floats, chance: np.random.Generator, *, limit: float, peaks: bool, most: int
) -> Examples:
    an_hour = max(1, round(HOUR / trace.step))
    record, parts = Record(trace.containers, most=limit), [Examples.none()]
    hours = trace.steps // an_hour
    share = min(1.0, 2.0 * most / max(1, hours * trace.containers))
    for hour in range(hours - 1):
        for row in usage[hour * an_hour : (hour + 1) * an_hour]:
            record.add(row)
        if hour > 0:  # of one hour alone nothing can be learned
            coming = usage[(hour + 1) * an_hour : (hour + 2) * an_hour]
            levels, _, shown = record.show(hour, trace.start + (hour + 1) * an_hour * trace.step)
            came = _peaks(coming) if peaks else coming[chance.integers(len(coming), size=SAMPLES)]
            ratios = np.log(np.maximum(came, 1e-12) / levels).T
            kept = np.isfinite(ratios).any(axis=1) & (chance.random(len(ratios)) < share)
            bounded = np.clip(ratios[kept], -FARTHEST, FARTHEST)
            parts.append(Examples(shown[kept].astype(np.float32), bounded.astype(np.float32)))
        record.close(hour, hour + 1)
    return Examples.joined(parts).some(chance, most)


def _peaks(coming: Floats) -> Floats:
    """The peak, and nothing in the other places."""
    came = np.full((SAMPLES, coming.shape[1]), np.nan)
    came[0] = np.fmax.reduce(coming, axis=0)
    return came
