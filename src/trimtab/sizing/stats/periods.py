"""Find the period of usage from the usage itself: no day and no week is assumed.

The autocorrelation of each series is computed at every lag for which two whole cycles were seen. A period is
a lag at which the series resembles itself again after it did not: a peak of the autocorrelation, with a dip
before it. Of those nearly as good as the best the shortest is taken, so that a daily series is not called
weekly.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trimtab.sizing.state import Floats

CHUNK = 4096
"""The number of series per chunk, which bounds the memory of the transforms."""
NEAR_BEST_MARGIN = 0.1
MIN_DIP = 0.1
MIN_MULTIPLES = 3
"""The number of multiples of a period from which they say more about it than its own peak."""
MIN_PAIR_SHARE = 0.25
"""The share of a series' pairs that a lag needs; gaps remove some."""


def find_periods(series: npt.NDArray[np.float32], *, least: int, strength: float) -> npt.NDArray[np.int64]:
    """Return the period of each series (one per row, NaN for a gap) in samples; 0 if it has none.

    A period is at least `least` samples long, and its autocorrelation at least `strength`.
    """
    found = [
        _pick_periods(_autocorrelation(series[start : start + CHUNK].astype(np.float64)), least, strength)
        for start in range(0, series.shape[0], CHUNK)
    ]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _autocorrelation(series: Floats) -> Floats:
    """Return the autocorrelation by lag, up to half the length; 0 where too few pairs are there."""
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
    """Return the sums of products of each row with itself, shifted by each lag."""
    size = 2 * values.shape[1]
    turned = np.fft.rfft(values, size, axis=1)
    sums: Floats = np.fft.irfft(turned * turned.conj(), size, axis=1)[:, :lags]
    return sums


def _pick_periods(correlation: Floats, least: int, strength: float) -> npt.NDArray[np.int64]:
    rows, lags = correlation.shape
    if lags < least + 2:
        return np.zeros(rows, np.int64)
    # Smoothing, because noise on a single lag is not a peak.
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
    """Pick the lag beside a peak whose multiples agree best: an error of one sample per cycle adds up over
    many.
    """
    best = np.full(periods.size, -np.inf)
    sharp = periods.copy()
    for period in np.unique(periods[(periods > 0) & (MIN_MULTIPLES * (periods + 1) < correlation.shape[1])]):
        rows = np.flatnonzero(periods == period)
        for lag in (period, period - 1, period + 1):
            agreement = correlation[rows, lag::lag].mean(axis=1)
            better = agreement > best[rows]
            best[rows[better]], sharp[rows[better]] = agreement[better], lag
    return sharp
