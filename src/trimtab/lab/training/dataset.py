"""The training data of the forecaster: features at the end of an hour, and the usage of the next hour."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.lab.neural.features import FEATURES, HOUR, MAX_LOG_RATIO, HourlyUsage
from trimtab.sizing.state import MAX_PLAUSIBLE_CPU, MAX_PLAUSIBLE_MEMORY
from trimtab.usage.trace import Floats, Trace

Singles = npt.NDArray[np.float32]
SAMPLES = 12
"""Samples of the next hour that are looked at."""


class Examples(NamedTuple):
    """Features, and the logarithms of what came, divided by the level; NaN where there was no sample."""

    features: Singles
    targets: Singles

    @classmethod
    def empty(cls) -> Examples:
        return cls(np.empty((0, FEATURES), np.float32), np.empty((0, SAMPLES), np.float32))

    @classmethod
    def concatenate(cls, parts: list[Examples]) -> Examples:
        return cls(
            np.concatenate([part.features for part in parts]),
            np.concatenate([part.targets for part in parts]),
        )

    def subsample(self, rng: np.random.Generator, most: int) -> Examples:
        if len(self.features) <= most:
            return self
        rows = np.sort(rng.choice(len(self.features), most, replace=False))
        return Examples(self.features[rows], self.targets[rows])


def build_examples(trace: Trace, *, seed: int, most: int) -> tuple[Examples, Examples]:
    """Build at most this many examples of CPU, and of memory, of which the peak of the hour counts."""
    rng = np.random.default_rng(seed)
    cpu = _build_resource_examples(trace, trace.cpu, rng, limit=MAX_PLAUSIBLE_CPU, peaks=False, most=most)
    memory = _build_resource_examples(
        trace, trace.memory, rng, limit=MAX_PLAUSIBLE_MEMORY, peaks=True, most=most
    )
    return cpu, memory


def _build_resource_examples(
    trace: Trace, usage: Floats, rng: np.random.Generator, *, limit: float, peaks: bool, most: int
) -> Examples:
    an_hour = max(1, round(HOUR / trace.step))
    record, parts = HourlyUsage(trace.container_count, most=limit), [Examples.empty()]
    hours = trace.steps // an_hour
    share = min(1.0, 2.0 * most / max(1, hours * trace.container_count))
    for hour in range(hours - 1):
        for row in usage[hour * an_hour : (hour + 1) * an_hour]:
            record.add(row)
        if hour > 0:  # of one hour alone nothing can be learned
            coming = usage[(hour + 1) * an_hour : (hour + 2) * an_hour]
            levels, _, shown = record.compute_features(hour, trace.start + (hour + 1) * an_hour * trace.step)
            outcome = (
                _build_peak_targets(coming) if peaks else coming[rng.integers(len(coming), size=SAMPLES)]
            )
            ratios = np.log(np.maximum(outcome, 1e-12) / levels).T
            kept = np.isfinite(ratios).any(axis=1) & (rng.random(len(ratios)) < share)
            bounded = np.clip(ratios[kept], -MAX_LOG_RATIO, MAX_LOG_RATIO)
            parts.append(Examples(shown[kept].astype(np.float32), bounded.astype(np.float32)))
        record.close_hour(hour, hour + 1)
    return Examples.concatenate(parts).subsample(rng, most)


def _build_peak_targets(coming: Floats) -> Floats:
    """Return targets with the peak first and nothing else."""
    outcome = np.full((SAMPLES, coming.shape[1]), np.nan)
    outcome[0] = np.fmax.reduce(coming, axis=0)
    return outcome
