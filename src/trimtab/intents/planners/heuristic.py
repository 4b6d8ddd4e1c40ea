"""Bound: the least that reaching a goal can still cost, never more than it does: what makes A* both quick and right.

Of each actuator it is known what its deeds would bring and cost now. Other deeds before them make them bring no more
and cost no less (`Actuator.diminishing`), so what is known now bounds what comes later. A knob can also be set
between two of the values that were looked at: it then brings at most what the upper one does and costs at least what
the lower one does. With these, the least cost of a gain is that of a knapsack that may take parts of things: take
what brings most for its cost first. It is computed for each objective alone; the largest counts.

For a goal of giving back, it is the most that the remaining actuators could still save.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple


class ActionEstimate(NamedTuple):
    """What one deed would bring now, and cost."""

    cost: float
    gains: Sequence[float]
    """By how much each objective's deficit falls, at best."""


class CostLowerBound:
    """Lower bounds for every suffix of the actuators: a plan takes its deeds in their order."""

    def __init__(
        self, prospects: Sequence[Sequence[ActionEstimate] | None], floors: Sequence[float], objectives: int
    ) -> None:
        """One list of prospects an actuator, None where nothing is known of it; the least each deed costs."""
        self._floors = [min(floors[at:], default=inf) for at in range(len(floors) + 1)]
        self._unbounded = [any(each is None for each in prospects[at:]) for at in range(len(prospects) + 1)]
        pieces: list[list[list[tuple[float, float]]]] = [
            [] if each is None else [_hull_segments(each, floor, at) for at in range(objectives)]
            for each, floor in zip(prospects, floors, strict=True)
        ]
        self._segments = [
            [
                sorted(piece for each in pieces[at:] if each for piece in each[objective])
                for objective in range(objectives)
            ]
            for at in range(len(prospects) + 1)
        ]
        self._savings = [
            sum(min(0.0, *(prospect.cost for prospect in each), 0.0) for each in prospects[at:] if each)
            for at in range(len(prospects) + 1)
        ]

    def min_cost(self, deficits: Sequence[float], after: int) -> float:
        """The least that the actuators from this one on must cost to make up for the deficits; inf: they cannot."""
        floor = self._floors[after]
        if self._unbounded[after]:
            return floor
        most = floor
        for deficit, pieces in zip(deficits, self._segments[after], strict=True):
            if deficit <= 0:
                continue
            cost = 0.0
            for price, gain in pieces:
                if gain >= deficit:
                    cost += price * deficit
                    break
                cost += price * gain
                deficit -= gain  # noqa: PLW2901 - what is still to be made up for
            else:
                if deficit > _EPSILON:
                    return inf
            most = max(most, cost)
        return most

    def max_gain(self, objective: int, after: int) -> float:
        """The most by which an objective's deficit can still fall."""
        return inf if self._unbounded[after] else sum(gain for _, gain in self._segments[after][objective])

    def max_saving(self, after: int) -> float:
        """The most that can still be saved, as a negative cost."""
        return -inf if self._unbounded[after] else self._savings[after]


def _hull_segments(
    prospects: Sequence[ActionEstimate], floor: float, objective: int
) -> list[tuple[float, float]]:
    """The upper hull of gain over cost, as pieces of (cost of a unit of gain, gain), dearer and dearer."""
    points = [(0.0, 0.0)]
    at, best = floor, 0.0
    for prospect in sorted(prospects, key=lambda each: each.cost):
        best = max(best, prospect.gains[objective])
        points.append((min(at, prospect.cost), best))
        at = prospect.cost
    hull: list[tuple[float, float]] = [points[0]]
    for cost, gain in points[1:]:
        if gain <= hull[-1][1]:
            continue
        # Keep the slope falling: a point under the line between its neighbours is never worth stopping at.
        while len(hull) > 1 and _gain_rate(hull[-2], hull[-1]) <= _gain_rate(hull[-2], (cost, gain)):
            hull.pop()
        hull.append((cost, gain))
    return [
        ((after[0] - before[0]) / (after[1] - before[1]), after[1] - before[1])
        for before, after in pairwise(hull)
    ]


def _gain_rate(low: tuple[float, float], high: tuple[float, float]) -> float:
    return (high[1] - low[1]) / max(1e-12, high[0] - low[0])


_EPSILON = 1e-9
