"""What PromQL makes of the samples within a window that ends at each step: `rate` and `max_over_time`, to the number.

A window is open at its left end, as in Prometheus 3. Pure.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from trimtab.usage.prometheus.remote.chunks import Times
from trimtab.usage.trace import Floats


@njit(cache=True)
def rates(times: Times, values: Floats, first: int, step: int, width: int, out: Floats) -> None:
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


@njit(cache=True)
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


@njit(cache=True)
def maxima(times: Times, values: Floats, first: int, step: int, width: int, out: Floats) -> None:
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
