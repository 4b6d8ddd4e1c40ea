"""What PromQL makes of the samples within a window that ends at each step: `rate` and `max_over_time`, to the number.

A window is open at its left end, as in Prometheus 3. A whole answer is worked through in one call that leaves Python
alone, so that the next answer can come in meanwhile. Pure.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from trimtab.usage.prometheus.remote.chunks import DAMAGED, Packed, Times, counted, unpack
from trimtab.usage.trace import Floats


@njit(cache=True, nogil=True)
def windowed(chunks: Packed, first: int, step: int, width: int, rate: bool, out: Floats) -> bool:  # noqa: FBT001 - numba has no keyword-only arguments
    """Fill in a row for each series: its rate, or else its maximum, in the window of `width` that ends at each step.

    Times are in milliseconds. False when a chunk cannot be read.
    """
    for series in range(chunks.begins.size - 1):
        room = counted(chunks, series)
        times, values = np.empty(room, np.int64), np.empty(room)
        if unpack(chunks, series, times, values) == DAMAGED:
            return False
        count = _sound(times, values)
        if rate:
            _rates(times[:count], values[:count], first, step, width, out[series])
        else:
            _maxima(times[:count], values[:count], first, step, width, out[series])
    return True


@njit(cache=True, nogil=True)
def _sound(times: Times, values: Floats) -> int:
    """Put in order, each time once, and without the marks of a series that went stale; the answer is how many are left."""
    count, ordered = 0, True
    for place in range(times.size):
        if not np.isnan(values[place]):
            times[count], values[count] = times[place], values[place]
            ordered = ordered and (count == 0 or times[count] > times[count - 1])
            count += 1
    if ordered:
        return count
    order = np.argsort(times[:count], kind="mergesort")
    in_order, theirs = times[:count][order], values[:count][order]
    kept = 0
    for place in range(count):
        if place == 0 or in_order[place] > in_order[place - 1]:
            times[kept], values[kept] = in_order[place], theirs[place]
            kept += 1
    return kept


@njit(cache=True, nogil=True)
def _rates(times: Times, values: Floats, first: int, step: int, width: int, out: Floats) -> None:
    """The rate of a counter a second; NaN where there are no two samples. Times in milliseconds, in order, each once."""
    begin = end = 0
    for row in range(out.size):
        until = first + row * step
        since = until - width
        while end < times.size and times[end] <= until:
            end += 1
        while begin < end and times[begin] <= since:
            begin += 1
        out[row] = _rate(times[begin:end], values[begin:end], since, until) if end - begin > 1 else np.nan


@njit(cache=True, nogil=True)
def _rate(times: Times, values: Floats, since: int, until: int) -> float:
    """Increase over the window, extrapolated to its ends as Prometheus' extrapolatedRate does."""
    count = times.size
    grown = values[count - 1] - values[0]
    before = values[0]
    for value in values[1:]:
        if value < before:  # the counter began anew
            grown += before
        before = value
    to_start = (times[0] - since) / 1000.0
    to_end = (until - times[count - 1]) / 1000.0
    seen = (times[count - 1] - times[0]) / 1000.0
    between = seen / (count - 1)
    if grown > 0 and values[0] >= 0:
        to_start = min(to_start, seen * (values[0] / grown))  # a counter was never below zero
    near = between * 1.1
    whole = seen
    whole += to_start if to_start < near else between / 2
    whole += to_end if to_end < near else between / 2
    return float(grown * (whole / seen) / ((until - since) / 1000.0))


@njit(cache=True, nogil=True)
def _maxima(times: Times, values: Floats, first: int, step: int, width: int, out: Floats) -> None:
    """The highest sample of each window; NaN where there is none. Windows overlap by little, so each is gone through."""
    begin = end = 0
    for row in range(out.size):
        until = first + row * step
        while end < times.size and times[end] <= until:
            end += 1
        while begin < end and times[begin] <= until - width:
            begin += 1
        highest = np.nan
        for value in values[begin:end]:
            if not value <= highest:
                highest = value
        out[row] = highest
