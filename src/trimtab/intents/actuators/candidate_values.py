"""Candidate values of a resource: a few values with growing distance, and the smallest one that is sufficient.

The coarse values allow combinations with other actions; the smallest sufficient value makes a plan exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from trimtab.intents.objective import Goal
from trimtab.intents.state import TargetState

STEP_FACTORS = (1.15, 1.3, 1.5, 2.0, 3.0, 4.0)
"""The factors of the candidate values. The largest one limits a single change, because models are not trusted
further away from observed values."""
_MAX_BETWEEN = 7


def evaluate_candidates(
    values: Sequence[float],
    *,
    step: float,
    goal: Goal,
    expect: Callable[[Sequence[float]], Sequence[TargetState]],
) -> list[tuple[float, TargetState]]:
    """Return the expected state at each value, nearest first, and at the value that only just reaches the goal."""
    found = list(zip(values, expect(values), strict=True))
    if goal.is_reached(found[0][1]) == goal.is_reached(found[-1][1]):
        return found
    low, high = 0, len(found) - 1
    upwards = goal.is_reached(found[high][1])
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if goal.is_reached(found[middle][1]) == upwards else (middle, high)
    inner = _values_between(values[low], values[high], step)
    good = [each for each in zip(inner, expect(inner), strict=True) if goal.is_reached(each[1])]
    # The cheapest sufficient value is the first one when resources grow, and the last one when they shrink.
    found[high:high] = (good[:1] if upwards else good[-1:]) if good else []
    return found


def list_candidate_values(now: float, *, low: float, high: float, step: float, down: bool) -> list[float]:
    """List the values above or below the current one that are multiples of the step within the bounds, nearest
    first.
    """
    found, last = [], now
    for factor in STEP_FACTORS:
        wanted = now / factor if down else now * factor
        value = round_to_step(wanted, step=step, up=not down)
        value = max(low, value) if down else min(high, value)
        if (value < last) if down else (value > last):
            found.append(value)
            last = value
    return found


def round_to_step(value: float, *, step: float, up: bool) -> float:
    """Round to a multiple of the step, with a tolerance for floating-point errors; infinity stays infinite."""
    if value == inf:
        return inf
    steps = value / step
    near = round(steps)
    if abs(steps - near) > 1e-6:
        near = int(steps) + 1 if up else int(steps)
    return near * step


def _values_between(one: float, other: float, step: float) -> list[float]:
    """Return a few multiples of the step between two values, in their order."""
    steps = round((other - one) / step)
    count = min(_MAX_BETWEEN, abs(steps) - 1)
    start = round(one / step)
    return [(start + round(steps * at / (count + 1))) * step for at in range(1, count + 1)]
