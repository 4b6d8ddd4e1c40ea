"""The A* search through the states that actuators lead to.

A path takes its actions in the order of the actuators, at most one of each group, because another order leads to
the same state. Nodes are expanded by the lowest possible final cost, so the first that reaches the goal is the
cheapest. If none does, all are ranked by what they miss. A larger budget examines the same nodes first in the same
order, so it never makes the result worse. Costs are core-hours of a workload, so that CPU, memory and options can be
compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

import msgspec

from trimtab.intents.actuator import Actuator, IntentAction
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.inputs import CACHE, POWER, option_key
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.objective import Goal
from trimtab.intents.planner import SearchBudget, compute_utility
from trimtab.intents.planners.heuristic import ActionEstimate, CostLowerBound
from trimtab.intents.state import TargetState

_GIBIBYTE = 2.0**30
OPTION_COSTS = {
    "cache:guaranteed": 0.10,
    "cache:burstable": 0.05,
    "power:performance": 0.10,
    "power:balance-performance": 0.05,
    "power:balance-power": -0.03,
    "power:power": -0.05,
}


class ResourceCosts(msgspec.Struct, frozen=True, kw_only=True):
    per_gibibyte: float = 0.125
    """The cost of a GiB of memory, in cores: clouds sell about eight GiB with a core."""
    per_option: Mapping[str, float] = msgspec.field(default_factory=OPTION_COSTS.copy)
    """The cost of an option per pod, in cores."""

    def cost(self, state: TargetState) -> float:
        """Return the cost of the requests and options of all pods together."""
        cpu, memory = state.requests_per_pod()
        each = cpu + memory / _GIBIBYTE * self.per_gibibyte
        if state.cache_class:
            each += self.per_option.get(option_key(CACHE, state.cache_class), 0.0)
        if state.power_profile:
            each += self.per_option.get(option_key(POWER, state.power_profile), 0.0)
        return each * state.replicas


_EPSILON = 1e-9


class SearchNode(NamedTuple):
    """A sequence of actions and the state that it leads to."""

    state: TargetState
    actions: tuple[IntentAction, ...]
    groups: tuple[str, ...]
    """The groups of the actions."""
    next_actuator: int
    """The index of the first actuator that can follow."""
    disruption: float
    cost: float
    """The additional cost compared with now, for resources and disruption; negative if it is lower."""
    deficits: Sequence[float]
    is_reached: bool
    missed_cost: float
    """The cost of the missed objectives."""

    @property
    def rank(self) -> tuple[bool, float, int]:
        """Return the sort key, smaller is better: reaching the goal, then cost including misses, then fewer
        actions.
        """
        return (not self.is_reached, self.cost + self.missed_cost, len(self.actions))


class SearchResult(NamedTuple):
    best: SearchNode
    alternatives: tuple[SearchNode, ...]
    """The best nodes with other actuators, best first."""
    expanded_states: int
    is_optimal: bool


class SearchProblem(NamedTuple):
    """The complete input of a search."""

    state: TargetState
    goal: Goal
    actuators: Sequence[Actuator]
    effects: EffectModels
    constraints: PlanConstraints
    costs: ResourceCosts
    full_utility_cost: float
    """The cost that meeting all objectives is worth, by which misses are weighed against resources."""


class Search:
    """One search with its examined nodes."""

    def __init__(self, problem: SearchProblem, budget: SearchBudget) -> None:
        self._problem, self._budget = problem, budget
        self._start_cost = problem.costs.cost(problem.state)
        self._best_by_groups: dict[tuple[str, ...], SearchNode] = {}
        self._expanded = 0
        self._start = self._best_node = self._build_node(
            problem.state, (), (), next_actuator=0, disruption=0.0
        )
        self._record(self._start)
        self._first_children = [self._children(self._start, at) for at in range(len(problem.actuators))]
        # An actuator without a useful action now is not examined again.
        self._useful_actuators = [
            at
            for at, nodes in enumerate(self._first_children)
            # What a plugin's actuator cannot do now may become possible after another action.
            if nodes or not problem.actuators[at].diminishing
        ]
        self._lower_bound = self._build_lower_bound()

    def run(self) -> SearchResult:
        is_release = self._problem.goal.is_release
        proven = self._expand(self._min_cost_of_release if is_release else self._min_cost_to_reach)
        # A plan that reaches the goal is always better, so compromises are examined only if none does.
        if not is_release and proven and not self._best_node.is_reached:
            proven = self._expand(self._min_cost_with_misses)
        best = self._best_node
        others = sorted(
            (node for node in self._best_by_groups.values() if node is not best), key=lambda node: node.rank
        )
        return SearchResult(best, tuple(others), self._expanded, proven)

    def single_steps(self) -> list[SearchNode]:
        """Return the nodes of single actions."""
        return [node for nodes in self._first_children for node in nodes]

    def best_step(self) -> SearchNode:
        """Return the best node of no action and of single actions."""
        return self._best_node

    def _expand(self, least_of: Callable[[SearchNode], float]) -> bool:
        """Expand nodes by lowest possible cost; return whether it is certain that none is better than the best."""
        allows_misses = least_of == self._min_cost_with_misses
        heap = [(least_of(self._start), 0, 0, self._start)]
        order = 1
        while heap:
            least, _, _, node = heappop(heap)
            # A node that reaches the goal is never beaten by one that does not, however cheap that is.
            best = self._best_node
            if least == inf or (
                (best.is_reached or allows_misses) and least >= best.cost + best.missed_cost - _EPSILON
            ):
                return True
            for at in self._useful_actuators:
                # Each set of actions is examined in one order only, not in all permutations.
                if at < node.next_actuator:
                    continue
                if self._expanded >= self._budget.max_states or self._budget.is_expired():
                    return False
                for child in self._first_children[at] if node is self._start else self._children(node, at):
                    # Fewer actions first, then the order of creation: equal costs would otherwise compare nodes, which
                    # have no order.
                    heappush(heap, (least_of(child), len(child.actions), order, child))
                    order += 1
        return True

    def _min_cost_to_reach(self, node: SearchNode) -> float:
        return (
            node.cost
            if node.is_reached
            else node.cost + self._lower_bound.min_cost(node.deficits, node.next_actuator)
        )

    def _min_cost_of_release(self, node: SearchNode) -> float:
        """Return the lowest cost of a release. Reductions improve nothing, so a node that left the goal cannot
        return to it.
        """
        return node.cost + self._lower_bound.max_saving(node.next_actuator) if node.is_reached else inf

    def _min_cost_with_misses(self, node: SearchNode) -> float:
        best_deficits = [
            deficit - self._lower_bound.max_gain(at, node.next_actuator) if deficit < inf else inf
            for at, deficit in enumerate(node.deficits)
        ]
        return node.cost + self._problem.full_utility_cost * (
            1.0 - compute_utility(self._problem.goal.objectives, best_deficits)
        )

    def _children(self, node: SearchNode, at: int) -> list[SearchNode]:
        """Return the nodes of this actuator's actions that meet the constraints."""
        state, goal, actuators, effects, limits, _, _ = self._problem
        actuator = actuators[at]
        if actuator.group in node.groups:
            return []
        groups = (*node.groups, actuator.group)
        found = []
        for action in actuator.candidates(node.state, goal=goal, effects=effects, limits=limits):
            self._expanded += 1
            # Compared with the start of the plan, not with the node before: limits bound the plan as a whole.
            if limits.find_violation(state, action.after) is not None:
                continue
            disruption = node.disruption + max(actuator.disruption, action.disruption)
            child = self._build_node(
                action.after, (*node.actions, action), groups, next_actuator=at + 1, disruption=disruption
            )
            if goal.is_release or _is_improvement(node, child):
                found.append(self._record(child))
        return found

    def _build_node(
        self,
        state: TargetState,
        actions: tuple[IntentAction, ...],
        groups: tuple[str, ...],
        *,
        next_actuator: int,
        disruption: float,
    ) -> SearchNode:
        goal = self._problem.goal
        deficits = goal.deficits(state)
        reached = max(deficits) <= _EPSILON
        missed = (
            0.0
            if reached
            else self._problem.full_utility_cost * (1.0 - compute_utility(goal.objectives, deficits))
        )
        cost = self._problem.costs.cost(state) - self._start_cost + disruption
        return SearchNode(state, actions, groups, next_actuator, disruption, cost, deficits, reached, missed)

    def _record(self, node: SearchNode) -> SearchNode:
        """Keep the node if it is the best with its groups."""
        known = self._best_by_groups.get(node.groups)
        if known is None or node.rank < known.rank:
            self._best_by_groups[node.groups] = node
            if node.rank < self._best_node.rank:
                self._best_node = node
        return node

    def _build_lower_bound(self) -> CostLowerBound:
        """Build the bound from the current optimistic gains of each actuator, without uncertainty."""
        actuators = self._problem.actuators
        now = self._expected_deficits(self._start.state)
        estimates = [
            [
                ActionEstimate(node.cost, _compute_gains(now, self._expected_deficits(node.state)))
                for node in nodes
            ]
            # The bound assumes that an action gains at most what it would gain now. A plugin makes no such
            # promise, so its gain is unbounded.
            if actuator.diminishing
            else None
            for actuator, nodes in zip(actuators, self._first_children, strict=True)
        ]
        return CostLowerBound(estimates, [actuator.disruption for actuator in actuators], len(now))

    def _expected_deficits(self, state: TargetState) -> list[float]:
        """Return the deficits of the expected values, without uncertainty."""
        return [
            inf if (value := state.objectives.get(objective.name)) is None else objective.deficit(value)
            for objective in self._problem.goal.objectives
        ]


def _is_improvement(node: SearchNode, child: SearchNode) -> bool:
    """Return whether an action improves anything: if it does not now, it does not after others, and the plan is
    cheaper without it. Costs must not decrease, which the bound relies on; savings have a goal of their own.
    """
    return child.cost >= node.cost and any(
        after < before - _EPSILON for after, before in zip(child.deficits, node.deficits, strict=True)
    )


def _compute_gains(now: Sequence[float], then: Sequence[float]) -> list[float]:
    return [0.0 if before == after else before - after for before, after in zip(now, then, strict=True)]
