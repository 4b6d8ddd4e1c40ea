"""Lower bounds of the remaining cost to reach a goal, as the admissible heuristic of A*.

The gain and cost of each actuator's actions are known for the current state. Other actions before them reduce the
gain and do not reduce the cost (`Actuator.diminishing`), so the current values are bounds. A value between two
examined ones gains at most as much as the upper and costs at least as much as the lower one. The lowest cost of a
gain is then that of a fractional knapsack, which takes the best ratio first. It is computed per objective, and the
largest bound counts.

For a release, the bound is the most that the remaining actuators can still save.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple


class ActionEstimate(NamedTuple):
    """The gain and the cost of one action now."""

    cost: float
    gains: Sequence[float]
    """The reduction of each objective's deficit at best."""


class CostLowerBound:
    """Lower bounds for every suffix of the actuators, because a plan uses them in their order."""

    def __init__(
        self, prospects: Sequence[Sequence[ActionEstimate] | None], floors: Sequence[float], objectives: int
    ) -> None:
        """Take the estimates of each actuator, None if they are unknown, and the lowest cost of each action."""
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
        """Return the lowest cost of making up for the deficits from this actuator on; infinity if that is
        impossible.
        """
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
        """Return the most by which an objective's deficit can still decrease."""
        return inf if self._unbounded[after] else sum(gain for _, gain in self._segments[after][objective])

    def max_saving(self, after: int) -> float:
        """Return the most that can still be saved, as a negative cost."""
        return -inf if self._unbounded[after] else self._savings[after]


def _hull_segments(
    prospects: Sequence[ActionEstimate], floor: float, objective: int
) -> list[tuple[float, float]]:
    """Return the upper hull of gain over cost as segments of (cost per gain, gain), with rising cost."""
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
        # Keep the slope decreasing: a point below the line between its neighbours is never optimal.
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
