"""Compute PromQL's `rate` and `max_over_time` over the window that ends at each step, exactly as Prometheus.

A window excludes its left end, as in Prometheus 3. A whole response is processed in one call without the GIL,
so that the next one can be received meanwhile. Pure.
"""

from __future__ import annotations

import numpy as np

from trimtab.kernel import kernel
from trimtab.usage.prometheus.remote_read.chunks import (
    DAMAGED,
    PackedChunks,
    Times,
    count_samples,
    unpack_series,
)
from trimtab.usage.trace import Floats


@kernel(nogil=True)
def evaluate_windows(
    chunks: PackedChunks,
    first: int,
    step: int,
    width: int,
    rate: bool,  # noqa: FBT001 - numba has no keyword-only arguments
    out: Floats,
) -> bool:
    """Fill in a row per series: its rate, or else its maximum, in the `width` before each step.

    Times are in milliseconds. Return False if a chunk is damaged.
    """
    for series in range(chunks.begins.size - 1):
        size = count_samples(chunks, series)
        times, values = np.empty(size, np.int64), np.empty(size)
        if unpack_series(chunks, series, times, values) == DAMAGED:
            return False
        count = _clean_samples(times, values)
        _fill_row(times[:count], values[:count], first, step, width, rate, out[series])
    return True


@kernel(nogil=True)
def _clean_samples(times: Times, values: Floats) -> int:
    """Sort the samples, drop duplicates and staleness markers, and return how many remain."""
    count, ordered = 0, True
    for index in range(times.size):
        if not np.isnan(values[index]):
            times[count], values[count] = times[index], values[index]
            ordered = ordered and (count == 0 or times[count] > times[count - 1])
            count += 1
    if ordered:
        return count
    order = np.argsort(times[:count], kind="mergesort")
    in_order, theirs = times[:count][order], values[:count][order]
    kept = 0
    for index in range(count):
        if index == 0 or in_order[index] > in_order[index - 1]:
            times[kept], values[kept] = in_order[index], theirs[index]
            kept += 1
    return kept


@kernel(nogil=True)
def _fill_row(
    times: Times,
    values: Floats,
    first: int,
    step: int,
    width: int,
    rate: bool,  # noqa: FBT001 - as above
    out: Floats,
) -> None:
    """Fill in one row, NaN where a window has too few samples; times are sorted and unique."""
    begin = end = 0
    for row in range(out.size):
        until = first + row * step
        since = until - width
        while end < times.size and times[end] <= until:
            end += 1
        while begin < end and times[begin] <= since:
            begin += 1
        if rate:
            out[row] = (
                _extrapolated_rate(times, values, begin, end, since, until) if end - begin > 1 else np.nan
            )
        else:
            out[row] = _max_value(values, begin, end)


@kernel(nogil=True, inline="always")
def _extrapolated_rate(times: Times, values: Floats, begin: int, end: int, since: int, until: int) -> float:
    """Return the increase per second, extrapolated to the window's ends like Prometheus' extrapolatedRate."""
    grown = values[end - 1] - values[begin]
    for index in range(begin + 1, end):
        if values[index] < values[index - 1]:  # the counter was reset
            grown += values[index - 1]
    to_start = (times[begin] - since) / 1000.0
    to_end = (until - times[end - 1]) / 1000.0
    seen = (times[end - 1] - times[begin]) / 1000.0
    between = seen / (end - begin - 1)
    if grown > 0 and values[begin] >= 0:
        to_start = min(to_start, seen * (values[begin] / grown))  # a counter was never below zero
    near = between * 1.1
    whole = seen
    whole += to_start if to_start < near else between / 2
    whole += to_end if to_end < near else between / 2
    return float(grown * (whole / seen) / ((until - since) / 1000.0))


@kernel(nogil=True, inline="always")
def _max_value(values: Floats, begin: int, end: int) -> float:
    """Return the highest of some samples; a linear scan suffices for windows that overlap little."""
    highest = np.nan
    for index in range(begin, end):
        if not values[index] <= highest:
            highest = values[index]
    return highest
