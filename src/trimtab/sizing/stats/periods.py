"""After how long usage repeats itself, found from the usage: no day and no week is assumed.

The autocorrelation of each series is taken at every lag for which two whole turns were seen. A period is a lag at
which the series is like itself again after it was not: a peak of the autocorrelation, with a dip before it. Of those
nearly as good as the best the shortest is taken, so that a daily series is not called weekly.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trimtab.sizing.strategy import Floats

CHUNK = 4096
"""Series at a time: bounds what the transforms take."""
NEAR_BEST_MARGIN = 0.1
MIN_DIP = 0.1
MIN_MULTIPLES = 3
"""Multiples of a period from which on they tell more of it than its own peak does."""
MIN_PAIR_SHARE = 0.25
"""Of the lengths' pairs that must be there for a lag to be believed; gaps take some away."""


def find_periods(series: npt.NDArray[np.float32], *, least: int, strength: float) -> npt.NDArray[np.int64]:
    """The period of each series (a row each, NaN for a gap) in places; 0 where it has none.

    A period is at least `least` places long, and its autocorrelation at least `strength`.
    """
    found = [
        _pick_periods(_autocorrelation(series[start : start + CHUNK].astype(np.float64)), least, strength)
        for start in range(0, series.shape[0], CHUNK)
    ]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _autocorrelation(series: Floats) -> Floats:
    """By lag, up to half the length; 0 where too few pairs are there to say."""
    length = series.shape[1]
    there = np.isfinite(series)
    count = np.maximum(there.sum(axis=1, keepdims=True), 1)
    filled = np.where(there, series, 0.0)
    centred = np.where(there, filled - filled.sum(axis=1, keepdims=True) / count, 0.0)
    variance = (centred**2).sum(axis=1, keepdims=True) / count
    lags = length // 2 + 1
    pairs = _lag_sums(there.astype(np.float64), lags).round()
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation: Floats = _lag_sums(centred, lags) / pairs / variance
    correlation[(pairs < MIN_PAIR_SHARE * length) | ~np.isfinite(correlation)] = 0.0
    return correlation


def _lag_sums(values: Floats, lags: int) -> Floats:
    """The sums of products of each row with itself, moved by each lag."""
    size = 2 * values.shape[1]
    turned = np.fft.rfft(values, size, axis=1)
    sums: Floats = np.fft.irfft(turned * turned.conj(), size, axis=1)[:, :lags]
    return sums


def _pick_periods(correlation: Floats, least: int, strength: float) -> npt.NDArray[np.int64]:
    rows, lags = correlation.shape
    if lags < least + 2:
        return np.zeros(rows, np.int64)
    # What noise puts on a single lag is not a peak.
    smooth = correlation.copy()
    smooth[:, 1:-1] = (correlation[:, :-2] + 2 * correlation[:, 1:-1] + correlation[:, 2:]) / 4
    inner = smooth[:, 1:-1]
    dip = np.minimum.accumulate(inner, axis=1)
    peak = (inner >= smooth[:, :-2]) & (inner >= smooth[:, 2:])
    peak &= (inner >= strength) & (dip <= inner - MIN_DIP)
    peak[:, : least - 1] = False
    best = np.where(peak, inner, -np.inf).max(axis=1, keepdims=True)
    good = peak & (inner >= best - NEAR_BEST_MARGIN)
    return _refine_periods(np.where(good.any(axis=1), good.argmax(axis=1) + 1, 0), correlation)


def _refine_periods(periods: npt.NDArray[np.int64], correlation: Floats) -> npt.NDArray[np.int64]:
    """A place off each turn adds up over many: of the lags beside a peak, take that whose multiples agree best."""
    best = np.full(periods.size, -np.inf)
    sharp = periods.copy()
    for period in np.unique(periods[(periods > 0) & (MIN_MULTIPLES * (periods + 1) < correlation.shape[1])]):
        rows = np.flatnonzero(periods == period)
        for lag in (period, period - 1, period + 1):
            agreement = correlation[rows, lag::lag].mean(axis=1)
            better = agreement > best[rows]
            best[rows[better]], sharp[rows[better]] = agreement[better], lag
    return sharp
