"""Arbitration between Intents that share nodes and quotas.

Intents with a higher priority plan first with the whole capacity, the others with the rest. A priority counts in
the Intent's own namespace; among namespaces, which take turns, only the priority that the administrator allows
counts (`Goal.priority_outside`). An Intent that waits
for capacity gains priority over time, so that none starves: after `aging_period` seconds, the lowest priority goes
before the highest one that does not wait. If a waiting Intent has clearly more priority than all Intents that
would have to yield on a node or in a quota, they yield step by step down to their constraints. An Intent with
unschedulable pods waits too, even if its objectives are unknown; otherwise it would be skipped forever.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from trimtab.api.intent import ObjectiveVerdict
from trimtab.api.kpiprofile import KPIType
from trimtab.intents.capacity import Capacity, additional_requests
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.objective import Goal
from trimtab.intents.planner import Plan, Purpose
from trimtab.intents.state import TargetState

AGING_PERIOD = 3600.0
"""The seconds of waiting that add as much as the whole range of priorities."""
PREEMPTION_RATIO = 0.5
"""The largest share of a waiting Intent's priority that the yielding Intents may have together."""
YIELD_TOLERANCE = 0.2
"""The share by which yielding Intents may miss their objectives."""
YIELD_DIVISOR = 4.0
"""The divisor of the CPU that a yielding Intent is assumed to release at once."""


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The planning input of one Intent."""

    goal: Goal
    state: TargetState
    effects: EffectModels = EffectModels()
    constraints: PlanConstraints = PlanConstraints()
    waiting_since: float | None = None
    """The time since which the Intent has waited for capacity; None if it does not wait."""


class SharedResource(NamedTuple):
    """A node, or the quota of a namespace."""

    kind: Literal["node", "quota"]
    name: str

    def free_cpu(self, capacity: Capacity) -> float:
        """Return the free cores."""
        return capacity.free_cpu(self.name) if self.kind == "node" else capacity.free_quota_cpu(self.name)

    def free_memory(self, capacity: Capacity) -> float:
        """Return the free bytes."""
        left = capacity.free_memory if self.kind == "node" else capacity.free_quota_memory
        return left(self.name)

    def cpu_held_by(self, request: PlanRequest) -> float:
        """Return the cores that the Intent's target requests here."""
        state = request.state
        pods = sum(pod.node == self.name for pod in state.pods) if self.kind == "node" else state.replicas
        return state.requests_per_pod()[0] * pods


class PlanDecision(NamedTuple):
    plan: Plan
    waiting_since: float | None
    """The time since which the Intent has waited, to be kept for the next cycle."""


MakePlan = Callable[[PlanRequest, PlanConstraints], Plan]


def effective_priority(request: PlanRequest, *, now: float, aging_period: float = AGING_PERIOD) -> float:
    """Return the priority, including the bonus for waiting."""
    return request.goal.priority + _waiting_bonus(request, now=now, aging_period=aging_period)


def _waiting_bonus(request: PlanRequest, *, now: float, aging_period: float) -> float:
    waited = 0.0 if request.waiting_since is None else max(0.0, now - request.waiting_since)
    return waited / aging_period


def sort_by_priority(
    requests: Iterable[PlanRequest], *, now: float, aging_period: float = AGING_PERIOD
) -> list[PlanRequest]:
    """Sort by effective priority in each namespace, and let the namespaces take turns: the next is the one whose
    first Intent has the most priority outside, then the one that had the fewest turns.
    """

    def rank(request: PlanRequest) -> tuple[float, str]:
        return -effective_priority(request, now=now, aging_period=aging_period), request.goal.intent

    queues: dict[str, list[PlanRequest]] = defaultdict(list)
    for request in sorted(requests, key=rank, reverse=True):  # the first one last, to be popped
        queues[request.goal.namespace].append(request)

    def turn(namespace: str, turns: int) -> tuple[float, int, str, str]:
        first = queues[namespace][-1]
        bonus = _waiting_bonus(first, now=now, aging_period=aging_period)
        return -(first.goal.priority_outside + bonus), turns, first.goal.intent, namespace

    waiting = [turn(namespace, 0) for namespace in queues]
    heapq.heapify(waiting)
    found = []
    while waiting:
        _, turns, _, namespace = heapq.heappop(waiting)
        found.append(queues[namespace].pop())
        if queues[namespace]:
            heapq.heappush(waiting, turn(namespace, turns + 1))
    return found


def arbitrate(
    requests: Sequence[PlanRequest],
    *,
    capacity: Capacity,
    make: MakePlan,
    now: float,
    aging_period: float = AGING_PERIOD,
) -> dict[str, PlanDecision]:
    """Plan for each Intent, so that all plans together fit the capacity."""
    decisions = {
        request.goal.intent: plan_within_capacity(request, capacity=capacity, make=make, now=now)
        for request in sort_by_priority(requests, now=now, aging_period=aging_period)
    }
    for request in select_preempted(requests, decisions, capacity=capacity):
        # Exploring, because a release that is certain to do no harm would have been planned already.
        plan = make(request, replace(request.constraints, explore=True))
        if plan.purpose is Purpose.RELEASE:
            decisions[request.goal.intent] = PlanDecision(replace(plan, purpose=Purpose.YIELD), None)
    return decisions


def plan_within_capacity(
    request: PlanRequest, *, capacity: Capacity, make: MakePlan, now: float
) -> PlanDecision:
    """Plan for one Intent within the remaining capacity, and reserve what the plan needs."""
    namespace = request.goal.namespace
    limits = capacity.constrain(request.constraints, request.state, namespace)
    plan = make(request, limits)
    if not _fits(plan, request, capacity):
        # Larger pods are harder to schedule, so try either more pods or larger ones.
        stay = replace(limits, extra_cpu_in_place=0.0, extra_memory_in_place=0.0)
        for narrower in (stay, replace(limits, extra_pods=0.0), replace(stay, extra_pods=0.0)):
            plan = make(request, narrower)
            if _fits(plan, request, capacity):
                break
    if plan.actions:
        # Reserved at once, or Intents with a lower priority would plan with the same cores.
        capacity.reserve(request.state, plan.actions[-1].after, namespace)
    # An Intent whose pods no node takes has nothing to plan: its new pods would be pending too. It waits even
    # if its objectives are unknown, or an Intent none of whose pods ever ran would never get capacity.
    if not (needs_unplaced_pods(request) and not plan.actions) and (
        plan.purpose is Purpose.REACH
        or not has_missed_objective(request)
        # Others must not yield for a goal that is out of reach with any capacity.
        or not _is_short_of_capacity(request, plan, make)
    ):
        return PlanDecision(plan, None)
    since = request.waiting_since if request.waiting_since is not None else now
    return PlanDecision(
        replace(plan, why=(*plan.why, "the Intent waits for capacity on its nodes or in its quota")), since
    )


def _is_short_of_capacity(request: PlanRequest, plan: Plan, make: MakePlan) -> bool:
    """Return whether more capacity would lead to a larger plan. Waiting is useless if the goal is out of reach
    anyway.
    """
    unconstrained = make(request, request.constraints)
    if not unconstrained.actions:
        return False
    had = additional_requests(request.state, plan.actions[-1].after)[0] if plan.actions else 0.0
    return additional_requests(request.state, unconstrained.actions[-1].after)[0] > had


def select_preempted(
    requests: Sequence[PlanRequest], decisions: Mapping[str, PlanDecision], *, capacity: Capacity
) -> list[PlanRequest]:
    """Select the Intents that have to yield, with relaxed objectives: for each waiting Intent, those of one node or
    quota.

    A yielding Intent may miss its objectives by `YIELD_TOLERANCE`, and regains free capacity in later cycles. None
    yields if all of them together would not free enough for one more pod.
    """
    waiting = [each for each in requests if decisions[each.goal.intent].waiting_since is not None]
    if not waiting:
        return []
    # Grouped once: comparing each waiting Intent with each other one grew with the square of their number.
    requests_by_resource = _group_by_resource(
        (each for each in requests if _can_yield(decisions[each.goal.intent])), capacity
    )
    found: dict[str, PlanRequest] = {}
    # By priority without the bonus for waiting: an unimportant Intent that waited for an hour may plan first,
    # but must not take capacity from a more important one.
    for request in sorted(waiting, key=lambda each: (-each.goal.priority, each.goal.intent)):
        offers = {
            resource: yielding
            for resource in sorted(_shared_resources(request, capacity) & requests_by_resource.keys())
            if (yielding := _select_yielding(request, requests_by_resource[resource], resource, capacity))
        }
        if offers:
            # One node or quota is enough for one more pod; the fewest Intents are disturbed.
            resource = min(offers, key=lambda each: len(offers[each]))
            found |= {each.goal.intent: _with_yield_tolerance(each) for each in offers[resource]}
            # What these namespaces release is now taken by the waiting Intent; others still have theirs.
            taken_from = {each.goal.namespace for each in offers[resource]}
            requests_by_resource[resource] = [
                each for each in requests_by_resource[resource] if each.goal.namespace not in taken_from
            ]
    return list(found.values())


def _can_yield(decision: PlanDecision) -> bool:
    return decision.waiting_since is None and not decision.plan.actions


def _select_yielding(
    request: PlanRequest, others: Iterable[PlanRequest], resource: SharedResource, capacity: Capacity
) -> list[PlanRequest]:
    """Select the Intents that must yield so that one more pod fits, lowest priority first; none if that is too
    many.
    """
    cpu, memory = request.state.requests_per_pod()
    if memory > resource.free_memory(capacity):
        # Yielding frees CPU only: without free memory for the pod, it would be useless.
        return []
    missing_cpu = cpu - resource.free_cpu(capacity)
    remaining_priority = request.goal.priority * PREEMPTION_RATIO
    remaining_outside = request.goal.priority_outside * PREEMPTION_RATIO
    found: list[PlanRequest] = []
    for other in sorted(others, key=lambda each: (each.goal.priority, each.goal.intent)):
        # The priorities of all that yield are added up. In overload, each alone is below the waiting one, and
        # together they lose more than it gains.
        if missing_cpu <= 0 or remaining_priority < other.goal.priority:
            break
        if other.goal.namespace != request.goal.namespace:
            # Otherwise anyone could take resources from another namespace by choosing a high priority.
            if remaining_outside < other.goal.priority:
                continue
            remaining_outside -= other.goal.priority
        remaining_priority -= other.goal.priority
        found.append(other)
        missing_cpu -= resource.cpu_held_by(other) / YIELD_DIVISOR
    return found if missing_cpu <= 0 else []


def _group_by_resource(
    requests: Iterable[PlanRequest], capacity: Capacity
) -> dict[SharedResource, list[PlanRequest]]:
    """Group the requests by the nodes and quotas that they use."""
    found: dict[SharedResource, list[PlanRequest]] = defaultdict(list)
    for request in requests:
        for resource in _shared_resources(request, capacity):
            found[resource].append(request)
    return found


def _shared_resources(request: PlanRequest, capacity: Capacity) -> set[SharedResource]:
    """Return the nodes and the quota of a request. Unscheduled pods could use any node that is not excluded; pods
    that were not even created are blocked by something else.
    """
    nodes = {pod.node for pod in request.state.pods}
    # Pods that a quota blocks do not exist, so no node is short of capacity for them, and nobody on a node
    # should yield.
    anywhere = request.state.unplaced and "" in nodes
    nodes = set(capacity.nodes) - request.state.excluded_nodes if anywhere else nodes - {""}
    places = {SharedResource("node", node) for node in nodes}
    if capacity.has_quota(request.goal.namespace):
        places.add(SharedResource("quota", request.goal.namespace))
    return places


def _with_yield_tolerance(request: PlanRequest) -> PlanRequest:
    objectives = tuple(
        each
        # A fifth less of 0.999 would be an outage.
        if each.kind is KPIType.AVAILABILITY
        else replace(each, value=replace(each, tolerance=YIELD_TOLERANCE).worst_acceptable)
        for each in request.goal.objectives
    )
    return replace(request, goal=replace(request.goal, objectives=objectives))


def has_missed_objective(request: PlanRequest) -> bool:
    """Return whether an objective is known to be missed; only then more resources are needed."""
    return any(
        objective.evaluate(request.state.objectives.get(objective.name)) is ObjectiveVerdict.MISSED
        for objective in request.goal.objectives
    )


def needs_unplaced_pods(request: PlanRequest) -> bool:
    """Return whether the unscheduled pods are needed, because not all objectives are known to be met without them."""
    return request.state.unplaced > 0 and not all(
        objective.evaluate(request.state.objectives.get(objective.name)) is ObjectiveVerdict.MET
        for objective in request.goal.objectives
    )


def _fits(plan: Plan, request: PlanRequest, capacity: Capacity) -> bool:
    return not plan.actions or capacity.fits(request.state, plan.actions[-1].after, request.goal.namespace)
