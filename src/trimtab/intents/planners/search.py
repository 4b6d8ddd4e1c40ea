"""Search: the best way through the states that actuators lead to.

A way takes its deeds in the order of the actuators, at most one of a group: the same deeds in another order would
lead to the same state. Ways are looked at in the order of the least that they can cost in the end (A*), so the first
that reaches the goal is the cheapest. When none does, all are weighed by what they miss, again the most promising
first. What was looked at with a small budget is looked at with a larger one too, first and in the same order, and the
best of it is the answer: more time never makes it worse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from trimtab.intents.action import Deed
from trimtab.intents.actuator import Actuator
from trimtab.intents.constraints import Limits
from trimtab.intents.cost import Prices
from trimtab.intents.effects.model import Effects
from trimtab.intents.objective import Goal
from trimtab.intents.plan import utility
from trimtab.intents.planner import Budget
from trimtab.intents.planners.heuristic import Bound, Prospect
from trimtab.intents.state import State

_CLOSE = 1e-9


class Way(NamedTuple):
    """Some deeds, and what they lead to."""

    state: State
    deeds: tuple[Deed, ...]
    groups: tuple[str, ...]
    """What the deeds have turned."""
    next: int
    """The first actuator that can follow."""
    disruption: float
    cost: float
    """What it costs more than now: resources and disruption; negative: less."""
    deficits: Sequence[float]
    reached: bool
    missed: float
    """What is missed, as a cost."""

    @property
    def rank(self) -> tuple[bool, float, int]:
        """Less is better: what reaches the goal, then what costs and misses least, then what does least."""
        return (not self.reached, self.cost + self.missed, len(self.deeds))


class Found(NamedTuple):
    best: Way
    others: tuple[Way, ...]
    """The best with other actuators, best first."""
    looked_at: int
    proven: bool


class Problem(NamedTuple):
    """What is searched: all that a plan depends on."""

    state: State
    goal: Goal
    actuators: Sequence[Actuator]
    effects: Effects
    limits: Limits
    prices: Prices
    worth: float
    """What all of what is wanted is worth, as a cost: by it, what is missed is weighed against what it takes."""


class Search:
    """One search; it holds what was looked at."""

    def __init__(self, problem: Problem, budget: Budget) -> None:
        self._problem, self._budget = problem, budget
        self._price = problem.prices.of(problem.state)
        self._best: dict[tuple[str, ...], Way] = {}
        self._looked_at = 0
        self._start = self._top = self._way(problem.state, (), (), following=0, disruption=0.0)
        self._keep(self._start)
        self._first = [self._children(self._start, at) for at in range(len(problem.actuators))]
        # What brings nothing now is not looked at again.
        self._useful = [
            at for at, ways in enumerate(self._first) if ways or not problem.actuators[at].diminishing
        ]
        self._bound = self._known_bound()

    def run(self) -> Found:
        gives_back = self._problem.goal.gives_back
        proven = self._look(self._least_saved if gives_back else self._least_reaching)
        if not gives_back and proven and not self._top.reached:
            proven = self._look(self._least_missed)
        best = self._top
        others = sorted((way for way in self._best.values() if way is not best), key=lambda way: way.rank)
        return Found(best, tuple(others), self._looked_at, proven)

    def single_steps(self) -> list[Way]:
        """Where each deed alone leads."""
        return [way for ways in self._first for way in ways]

    def best_step(self) -> Way:
        """The best of doing nothing and of single deeds."""
        return self._top

    def _look(self, least_of: Callable[[Way], float]) -> bool:
        """Look at ways, those first that can cost least; whether it is certain that none is better than the best."""
        weighs = least_of == self._least_missed
        heap = [(least_of(self._start), 0, 0, self._start)]
        order = 1
        while heap:
            least, _, _, way = heappop(heap)
            # What ranks by reaching the goal is not beaten by what does not, however little that costs.
            best = self._top
            if least == inf or ((best.reached or weighs) and least >= best.cost + best.missed - _CLOSE):
                return True
            for at in self._useful:
                if at < way.next:
                    continue
                if self._looked_at >= self._budget.states or self._budget.expired():
                    return False
                for child in self._first[at] if way is self._start else self._children(way, at):
                    heappush(heap, (least_of(child), len(child.deeds), order, child))
                    order += 1
        return True

    def _least_reaching(self, way: Way) -> float:
        return way.cost if way.reached else way.cost + self._bound.least(way.deficits, way.next)

    def _least_saved(self, way: Way) -> float:
        """What is given back makes nothing better: a way that has left the goal does not come back to it."""
        return way.cost + self._bound.most_saved(way.next) if way.reached else inf

    def _least_missed(self, way: Way) -> float:
        hopes = [
            deficit - self._bound.most_gain(at, way.next) if deficit < inf else inf
            for at, deficit in enumerate(way.deficits)
        ]
        return way.cost + self._problem.worth * (1.0 - utility(self._problem.goal.objectives, hopes))

    def _children(self, way: Way, at: int) -> list[Way]:
        """Where one deed of this actuator leads, within the limits."""
        state, goal, actuators, effects, limits, _, _ = self._problem
        actuator = actuators[at]
        if actuator.group in way.groups:
            return []
        groups = (*way.groups, actuator.group)
        found = []
        for deed in actuator.candidates(way.state, goal=goal, effects=effects, limits=limits):
            self._looked_at += 1
            if limits.breach(state, deed.after) is not None:
                continue
            disruption = way.disruption + max(actuator.disruption, deed.disruption)
            child = self._way(deed.after, (*way.deeds, deed), groups, following=at + 1, disruption=disruption)
            if goal.gives_back or _worth_it(way, child):
                found.append(self._keep(child))
        return found

    def _way(
        self,
        state: State,
        deeds: tuple[Deed, ...],
        groups: tuple[str, ...],
        *,
        following: int,
        disruption: float,
    ) -> Way:
        goal = self._problem.goal
        deficits = goal.deficits(state)
        reached = max(deficits) <= _CLOSE
        missed = 0.0 if reached else self._problem.worth * (1.0 - utility(goal.objectives, deficits))
        cost = self._problem.prices.of(state) - self._price + disruption
        return Way(state, deeds, groups, following, disruption, cost, deficits, reached, missed)

    def _keep(self, way: Way) -> Way:
        """Keep it in mind when it is the best with its actuators."""
        known = self._best.get(way.groups)
        if known is None or way.rank < known.rank:
            self._best[way.groups] = way
            if way.rank < self._top.rank:
                self._top = way
        return way

    def _known_bound(self) -> Bound:
        """From what each actuator would bring now, at best: without the doubt."""
        actuators = self._problem.actuators
        now = self._expected(self._start.state)
        prospects = [
            [Prospect(way.cost, _gains(now, self._expected(way.state))) for way in ways]
            if actuator.diminishing
            else None
            for actuator, ways in zip(actuators, self._first, strict=True)
        ]
        return Bound(prospects, [actuator.disruption for actuator in actuators], len(now))

    def _expected(self, state: State) -> list[float]:
        """The deficits as if the expected were certain."""
        return [
            inf if (value := state.objectives.get(objective.name)) is None else objective.deficit(value)
            for objective in self._problem.goal.objectives
        ]


def _worth_it(way: Way, child: Way) -> bool:
    """Whether a deed brings anything: what brings nothing now brings nothing after others, and a plan is cheaper
    without it. Costs must grow, which the bound relies on; savings have a goal of their own.
    """
    return child.cost >= way.cost and any(
        after < before - _CLOSE for after, before in zip(child.deficits, way.deficits, strict=True)
    )


def _gains(now: Sequence[float], then: Sequence[float]) -> list[float]:
    return [0.0 if before == after else before - after for before, after in zip(now, then, strict=True)]
