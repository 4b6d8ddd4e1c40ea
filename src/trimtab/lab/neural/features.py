"""The input of a network: a week of hours as numbers that do not depend on the size of the container.

Time is cut into hours from the first sample on. Of each hour the mean, a high value (near the 90th percentile) and the
peak are kept, for a week. `features` makes of them what the networks were trained on: logarithms of what was used
divided by the mean of the last day (the level), of the last hours, of longer times, and of the hours of former days
that lie as the next one does. Ten times the usage is shown as the same, and so is sized ten times as large.

The environments show agents the same numbers, so that what was learned there holds here. Left out is what is made of
it: `learned_network` computes, `forecaster` and `learned` decide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from trimtab.sizing.state import Array, Floats

HOUR, DAY, WEEK = 3600.0, 86400.0, 7 * 86400.0
HOURS = 168
MEAN, HIGH, PEAK = range(3)
STATISTICS = 3
P90_DEVIATIONS = 1.28
"""Standard deviations from a mean to the 90th percentile, of what is nearly normal."""
MIN_LEVEL = 1e-9
MAX_LOG_RATIO = 7.0
"""The bounds of logarithms of ratios: a thousandth and a thousandfold."""
COMPLETE_SHARE = 0.9
"""The part of an hour after which its data say enough of it."""

WINDOWS = (3, 6, 24, 72, 168)
"""Hours back from now of which mean, high value, peak and least mean are shown."""
LAGS = (22, 23, 24, 46, 47, 48, 71, 167)
"""Hours before the last full one: the next hour on former days, and those beside it."""
RECENT_HOURS = 4
TIME_FEATURES = 9
"""The features for time and for the amount of data."""
FEATURES = 1 + STATISTICS * RECENT_HOURS + 4 * len(WINDOWS) + 2 * len(LAGS) + 4 + TIME_FEATURES

Singles = npt.NDArray[np.float32]


class OpenHour(NamedTuple):
    """The sums of the present hour, from which its features are computed."""

    samples: npt.NDArray[np.int64]
    total: Floats
    squares: Floats
    peak: Floats
    last: Floats

    @classmethod
    def empty(cls, rows: int) -> OpenHour:
        return cls(np.zeros(rows, np.int64), np.zeros(rows), np.zeros(rows), np.zeros(rows), np.zeros(rows))


class FeatureSet(NamedTuple):
    """The features of each row."""

    levels: Floats
    """The mean of the last day; NaN without any sample."""
    peaks: Floats
    """The highest of the week."""
    features: Floats


@njit(cache=True, error_model="numpy")
def add_samples(values: Floats, most: float, filling: OpenHour) -> None:
    """Add one sample for each row; implausible values are ignored."""
    for row in range(values.size):
        value = values[row]
        if 0.0 <= value <= most:
            filling.samples[row] += 1
            filling.total[row] += value
            filling.squares[row] += value * value
            filling.peak[row] = max(filling.peak[row], value)
            filling.last[row] = value


@njit(cache=True, error_model="numpy")
def close_hour(number: int, filling: OpenHour, history: Singles, density: Floats) -> None:
    """Let the hour that is being filled be that of this number, and begin an empty one."""
    place = number % HOURS
    for row in range(history.shape[0]):
        count = filling.samples[row]
        if count == 0:
            history[row, place, :] = np.nan
            continue
        _summarize_hour(row, filling, history[row, place])
        density[row] = np.log(count)
        filling.samples[row] = 0
        filling.total[row] = 0.0
        filling.squares[row] = 0.0
        filling.peak[row] = 0.0


@njit(cache=True, error_model="numpy")
def _summarize_hour(row: int, filling: OpenHour, into: Singles) -> None:
    count = filling.samples[row]
    mean = filling.total[row] / count
    spread = np.sqrt(max(filling.squares[row] / count - mean * mean, 0.0))
    into[MEAN] = mean
    into[HIGH] = min(mean + P90_DEVIATIONS * spread, filling.peak[row])
    into[PEAK] = filling.peak[row]


@njit(cache=True, error_model="numpy")
def _log_ratio(value: float, level: float) -> float:
    return float(min(max(np.log(max(value, MIN_LEVEL) / level), -MAX_LOG_RATIO), MAX_LOG_RATIO))


@njit(cache=True, error_model="numpy")
def compute_features(
    now: int,
    ahead: float,
    filling: OpenHour,
    history: Singles,
    density: Floats,
    levels: Floats,
    peaks: Floats,
    out: Floats,
) -> None:
    """The level, the peak and the features of each row, as if the hour of this number were over; `ahead` is the next's time.

    A row without a sample has the level NaN, and features that mean nothing.
    """
    hours = np.empty((HOURS, STATISTICS), np.float32)  # the last hour first
    for row in range(history.shape[0]):
        place = now % HOURS
        for back in range(1, HOURS):
            place = place - 1 if place > 0 else HOURS - 1
            for statistic in range(STATISTICS):
                hours[back, statistic] = history[row, place, statistic]
        for statistic in range(STATISTICS):
            hours[0, statistic] = np.nan
        if filling.samples[row] > 0:
            _summarize_hour(row, filling, hours[0])
        peaks[row] = _week_peak(hours)
        levels[row] = _day_level(hours, peaks[row])
        if not np.isnan(levels[row]):
            count = filling.samples[row]
            dense = np.log(count) if count > 0 else density[row]
            last = filling.last[row] if count > 0 else np.nan
            _write_features(hours, levels[row], last, dense, ahead, out[row])


@njit(cache=True, error_model="numpy")
def _week_peak(hours: Singles) -> float:
    peak = 0.0
    for back in range(HOURS):
        peak = max(peak, hours[back, PEAK])
    return peak


@njit(cache=True, error_model="numpy")
def _day_level(hours: Singles, peak: float) -> float:
    """Return the mean of the last day with samples, at least a thousandth of the week's peak."""
    total, count = 0.0, 0
    for back in range(HOURS):
        if not np.isnan(hours[back, MEAN]):
            total += hours[back, MEAN]
            count += 1
            if count == 24:
                break
    if count == 0:
        return np.nan
    return float(max(total / count, peak * 1e-3, MIN_LEVEL))


@njit(cache=True, error_model="numpy")
def _write_features(
    hours: Singles, level: float, last: float, dense: float, ahead: float, out: Floats
) -> None:
    at = 0
    fresh = 0.0
    for back in range(RECENT_HOURS):
        known = not np.isnan(hours[back, MEAN])
        for statistic in range(STATISTICS):
            if known:
                out[at] = _log_ratio(hours[back, statistic], level)
            else:
                out[at] = 0.0 if back == 0 else out[at - STATISTICS]
            at += 1
        fresh += known
    out[at] = out[MEAN] if np.isnan(last) else _log_ratio(last, level)
    at += 1
    at = _write_window_features(hours, level, at, out)
    for lag in LAGS:
        known = not np.isnan(hours[lag, MEAN])
        out[at] = _log_ratio(hours[lag, MEAN], level) if known else 0.0
        out[at + 1] = _log_ratio(hours[lag, PEAK], level) if known else 0.0
        at += 2
    at = _write_same_hour_features(hours, level, at, out)
    age = HOURS
    while np.isnan(hours[age - 1, MEAN]):
        age -= 1
    day, week = 2 * np.pi * (ahead % DAY) / DAY, 2 * np.pi * (ahead % WEEK) / WEEK
    out[at] = np.sin(day)
    out[at + 1] = np.cos(day)
    out[at + 2] = np.sin(week)
    out[at + 3] = np.cos(week)
    out[at + 4] = np.log(age + 1.0) / np.log(HOURS + 1.0)
    out[at + 5] = 1.0 if age >= 24 else 0.0
    out[at + 6] = 1.0 if age >= 48 else 0.0
    out[at + 7] = fresh / RECENT_HOURS
    out[at + 8] = dense


@njit(cache=True, error_model="numpy")
def _write_window_features(hours: Singles, level: float, start: int, out: Floats) -> int:
    """Write mean, high value, peak and least mean of each window."""
    total, high, peak, least, count = 0.0, 0.0, 0.0, np.inf, 0
    at, window = start, 0
    for back in range(HOURS):
        mean = hours[back, MEAN]
        if not np.isnan(mean):
            total += mean
            high += hours[back, HIGH]
            peak = max(peak, hours[back, PEAK])
            least = min(least, mean)
            count += 1
        if back + 1 == WINDOWS[window]:
            if count:
                out[at] = _log_ratio(total / count, level)
                out[at + 1] = _log_ratio(high / count, level)
                out[at + 2] = _log_ratio(peak, level)
                out[at + 3] = _log_ratio(least, level)
            else:
                out[at : at + 4] = 0.0
            at += 4
            window += 1
    return at


@njit(cache=True, error_model="numpy")
def _write_same_hour_features(hours: Singles, level: float, start: int, out: Floats) -> int:
    """Write mean and peak of the next hour on all former days, and the differences over a day and between hours."""
    total, peak, count = 0.0, 0.0, 0
    for lag in range(23, HOURS, 24):
        if not np.isnan(hours[lag, MEAN]):
            total += hours[lag, MEAN]
            peak = max(peak, hours[lag, PEAK])
            count += 1
    out[start] = _log_ratio(total / count, level) if count else 0.0
    out[start + 1] = _log_ratio(peak, level) if count else 0.0
    before, moved, moves, squares, known = np.nan, 0.0, 0, 0.0, 0
    for back in range(24):
        if np.isnan(hours[back, MEAN]):
            continue
        ratio = _log_ratio(hours[back, MEAN], level)
        squares += ratio * ratio
        known += 1
        if not np.isnan(before):
            moved += abs(ratio - before)
            moves += 1
        before = ratio
    out[start + 2] = np.sqrt(squares / known) if known else 0.0
    out[start + 3] = moved / moves if moves else 0.0
    return start + 4


class HourlyUsage:
    """The hourly usage of one resource of all containers: a week of hours, and the present one."""

    def __init__(self, rows: int, *, most: float) -> None:
        self._most = most
        self.history = np.full((rows, HOURS, STATISTICS), np.nan, np.float32)
        self.density = np.zeros(rows)
        """The logarithm of how many samples an hour had."""
        self.open_hour = OpenHour.empty(rows)

    def add(self, values: Floats) -> None:
        add_samples(values, self._most, self.open_hour)

    def close_hour(self, number: int, coming: int) -> None:
        """End the hour of this number; those until the next one are unknown."""
        close_hour(number, self.open_hour, self.history, self.density)
        for skipped in range(max(number + 1, coming - HOURS), coming):
            self.history[:, skipped % HOURS] = np.nan

    def compute_features(self, now: int, ahead: float) -> FeatureSet:
        """Return the features of each row as if the hour of this number were over."""
        rows = len(self.history)
        shown = FeatureSet(np.full(rows, np.nan), np.zeros(rows), np.zeros((rows, FEATURES)))
        compute_features(now, ahead, self.open_hour, self.history, self.density, *shown)
        return shown

    def arrays(self, prefix: str) -> dict[str, Array]:
        own: dict[str, Array] = {prefix + "history": self.history, prefix + "density": self.density}
        return own | {f"{prefix}filling.{name}": array for name, array in self.open_hour._asdict().items()}

    def load_arrays(self, prefix: str, arrays: Mapping[str, Array]) -> None:
        self.history, self.density = arrays[prefix + "history"], arrays[prefix + "density"]
        self.open_hour = OpenHour(*(arrays[f"{prefix}filling.{name}"] for name in OpenHour._fields))


class HourClock:
    """The number of the hour, counted from the first sample."""

    def __init__(self) -> None:
        self.times = np.full(2, np.nan)
        """The times of the first sample of all and of this hour."""

    @property
    def has_started(self) -> bool:
        return not np.isnan(self.times[0])

    @property
    def current_hour(self) -> int:
        """Return the present hour."""
        return self.hour_at(float(self.times[1]))

    def hour_at(self, t: float) -> int:
        return math.floor((t - float(self.times[0])) / HOUR)

    def hour_start(self, number: int) -> float:
        return float(self.times[0]) + number * HOUR

    def advance(self, t: float) -> tuple[int, int] | None:
        """Advance to time `t`, and return the hour that ended and the one that begins, if any does."""
        if not self.has_started:
            self.times[:] = t
            return None
        before, now = self.current_hour, self.hour_at(t)
        if now <= before:
            return None
        self.times[1] = t
        return before, now

    def is_nearly_over(self, t: float) -> bool:
        """True if the current hour is almost over."""
        return t - self.hour_start(self.current_hour) >= COMPLETE_SHARE * HOUR
