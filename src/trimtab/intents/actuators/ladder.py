"""Ladder: the few values of a knob that are worth looking at: rungs that get wider, and the least that is enough.

The rungs make combinations with other deeds possible; the least that is enough makes a plan exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

FACTORS = (1.15, 1.3, 1.5, 2.0, 3.0, 4.0)
STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)


def least(low: int, high: int, *, enough: Callable[[int], bool]) -> int | None:
    """The least of low..high that is enough, where more is never worse; None: not even the highest is."""
    if low > high or not enough(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return low


def rungs(now: float, *, low: float, high: float, step: float, down: bool) -> Iterator[float]:
    """Values above now, or below, that are whole steps within the bounds; nearest first."""
    last = now
    for factor in FACTORS:
        wanted = now / factor if down else now * factor
        value = whole(wanted, step=step, up=not down)
        value = max(low, value) if down else min(high, value)
        if (value < last) if down else (value > last):
            yield value
            last = value


def whole(value: float, *, step: float, up: bool) -> float:
    """The next whole step; what is nearly one is one."""
    steps = value / step
    near = round(steps)
    if abs(steps - near) > 1e-6:
        near = int(steps) + 1 if up else int(steps)
    return near * step
