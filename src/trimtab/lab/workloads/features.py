"""The features of a fleet's series, one number each: size, variability, autocorrelation, periodicity.

By these a fitted type is held against what it was fitted to. Gaps (NaN) are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.api.quantity import MIB
from trimtab.lab.workloads.sampling import DAY
from trimtab.usage.trace import Floats

BURST = 2.0
"""A sample is of a burst when it is so many times the series' mean."""


@dataclass(frozen=True, slots=True)
class Features:
    """One number a series; NaN if it cannot be computed."""

    mean_cores: Floats
    peak_ratio: Floats
    """The highest sample beside the mean."""
    variability: Floats
    """Standard deviation beside the mean."""
    next_step: Floats
    """Correlation of a sample with the next."""
    next_day: Floats
    """Correlation with the sample of a day later."""
    burst_share: Floats
    mean_mib: Floats
    memory_variability: Floats
    memory_follows: Floats
    """Correlation of memory with CPU over time."""
    mib_a_core: Floats

    @classmethod
    def from_series(cls, cpu: Floats, memory: Floats, *, step: float) -> Features:
        """Compute the features of arrays [series, steps]."""
        with np.errstate(invalid="ignore", divide="ignore"):
            mean, level = _mean(cpu), _mean(memory) / MIB
            spread, unrest = _deviation(cpu), _deviation(memory)
            return cls(
                mean_cores=mean,
                peak_ratio=np.fmax.reduce(cpu, axis=1) / mean,
                variability=spread / mean,
                next_step=_correlation(cpu, cpu, 1),
                next_day=_correlation(cpu, cpu, round(DAY / step)),
                burst_share=_mean(np.where(np.isnan(cpu), np.nan, cpu > BURST * mean[:, None])),
                mean_mib=level,
                memory_variability=unrest / MIB / level,
                memory_follows=_correlation(cpu, memory, 0),
                mib_a_core=level / mean,
            )


def _mean(rows: Floats) -> Floats:
    counts = np.count_nonzero(~np.isnan(rows), axis=1)
    means: Floats = np.where(counts > 0, np.nansum(rows, axis=1) / counts, np.nan)
    return means


def _deviation(rows: Floats) -> Floats:
    deviations: Floats = np.sqrt(_mean((rows - _mean(rows)[:, None]) ** 2))
    return deviations


def _correlation(one: Floats, other: Floats, lag: int) -> Floats:
    """Return the correlation; NaN if the lag is longer than half the time, or one series never changes."""
    if 2 * lag > one.shape[1]:
        return np.full(len(one), np.nan)
    first = one - _mean(one)[:, None]
    second = other - _mean(other)[:, None]
    together = _mean(first[:, : one.shape[1] - lag] * second[:, lag:])
    apart = _deviation(one) * _deviation(other)
    found: Floats = np.divide(
        together, apart, out=np.full(len(one), np.nan), where=apart > 1e-9 * np.abs(_mean(one))
    )
    return found
