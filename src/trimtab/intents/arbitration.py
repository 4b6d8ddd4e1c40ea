"""Arbitration: many intents at once, who share nodes and quotas.

Those of a higher priority plan first, with all the room; the others with what is left. Who waits for room gains rank
with time, so that nobody waits for ever: after `patience` seconds the least important goes before the most important
that does not wait. Where one waits that is clearly more important than all who would have to give way to it on a node
or in a quota, they do: a rung at a time, down to their limits. Who has pods that no node has room for waits too, though
nothing may be known of its objectives: else one whose pods never ran would be passed over for ever.
"""

from __future__ import annotations

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
from trimtab.intents.plan import Plan, Purpose
from trimtab.intents.state import TargetState

AGING_PERIOD = 3600.0
"""Seconds of waiting that are worth as much as the whole range of priorities."""
PREEMPTION_RATIO = 0.5
"""Those who have together at most this share of another's priority give way to it."""
YIELD_TOLERANCE = 0.2
"""By which share of it those who give way may miss what they want."""
YIELD_DIVISOR = 4.0
"""The share of its cores that one who gives way is thought to give at once: one in so many."""


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One intent that is to be planned for."""

    goal: Goal
    state: TargetState
    effects: EffectModels = EffectModels()
    constraints: PlanConstraints = PlanConstraints()
    waiting_since: float | None = None
    """Since when it has waited for room; None: it does not."""


class SharedResource(NamedTuple):
    """A node, or the quota of a namespace."""

    kind: Literal["node", "quota"]
    name: str

    def free_cpu(self, capacity: Capacity) -> float:
        """Cores."""
        return capacity.free_cpu(self.name) if self.kind == "node" else capacity.free_quota_cpu(self.name)

    def free_memory(self, capacity: Capacity) -> float:
        """Bytes."""
        left = capacity.free_memory if self.kind == "node" else capacity.free_quota_memory
        return left(self.name)

    def cpu_held_by(self, request: PlanRequest) -> float:
        """The cores that it has here."""
        state = request.state
        here = sum(pod.node == self.name for pod in state.pods) if self.kind == "node" else state.replicas
        return state.requests_per_pod()[0] * here


class PlanDecision(NamedTuple):
    plan: Plan
    waiting_since: float | None
    """To be remembered for the next cycle."""


MakePlan = Callable[[PlanRequest, PlanConstraints], Plan]


def effective_priority(request: PlanRequest, *, now: float, aging_period: float = AGING_PERIOD) -> float:
    """Who goes first: the priority, and what waiting adds to it."""
    waited = 0.0 if request.waiting_since is None else max(0.0, now - request.waiting_since)
    return request.goal.priority + waited / aging_period


def sort_by_priority(
    requests: Iterable[PlanRequest], *, now: float, aging_period: float = AGING_PERIOD
) -> list[PlanRequest]:
    return sorted(
        requests,
        key=lambda claim: (-effective_priority(claim, now=now, aging_period=aging_period), claim.goal.intent),
    )


def arbitrate(
    requests: Sequence[PlanRequest],
    *,
    capacity: Capacity,
    make: MakePlan,
    now: float,
    aging_period: float = AGING_PERIOD,
) -> dict[str, PlanDecision]:
    """A plan for each intent; together they take no more than there is."""
    rulings = {
        claim.goal.intent: plan_within_capacity(claim, capacity=capacity, make=make, now=now)
        for claim in sort_by_priority(requests, now=now, aging_period=aging_period)
    }
    for claim in select_preempted(requests, rulings, capacity=capacity):
        plan = make(claim, replace(claim.constraints, explore=True))
        if plan.purpose is Purpose.RELEASE:
            rulings[claim.goal.intent] = PlanDecision(replace(plan, purpose=Purpose.YIELD), None)
    return rulings


def plan_within_capacity(
    request: PlanRequest, *, capacity: Capacity, make: MakePlan, now: float
) -> PlanDecision:
    """The plan of the next in order, booked."""
    namespace = request.goal.namespace
    limits = capacity.constrain(request.constraints, request.state, namespace)
    plan = make(request, limits)
    if not _fits(plan, request, capacity):
        # Larger pods are harder to place: then either more of them or larger ones.
        stay = replace(limits, extra_cpu_in_place=0.0, extra_memory_in_place=0.0)
        for narrower in (stay, replace(limits, extra_pods=0.0), replace(stay, extra_pods=0.0)):
            plan = make(request, narrower)
            if _fits(plan, request, capacity):
                break
    if plan.actions:
        capacity.reserve(request.state, plan.actions[-1].after, namespace)
    if not (needs_unplaced_pods(request) and not plan.actions) and (
        plan.purpose is Purpose.REACH
        or not has_missed_objective(request)
        or not _lacks_capacity(request, plan, make)
    ):
        return PlanDecision(plan, None)
    since = request.waiting_since if request.waiting_since is not None else now
    return PlanDecision(
        replace(plan, why=(*plan.why, "it waits for room on its nodes or in its quota")), since
    )


def _lacks_capacity(request: PlanRequest, plan: Plan, make: MakePlan) -> bool:
    """Whether it would take more if there were more: what is out of reach anyhow is not worth waiting for."""
    wish = make(request, request.constraints)
    if not wish.actions:
        return False
    had = additional_requests(request.state, plan.actions[-1].after)[0] if plan.actions else 0.0
    return additional_requests(request.state, wish.actions[-1].after)[0] > had


def select_preempted(
    requests: Sequence[PlanRequest], decisions: Mapping[str, PlanDecision], *, capacity: Capacity
) -> list[PlanRequest]:
    """Those who are to give way, as claims of less: for each that waits, those of one node or quota.

    Who gives way may miss its own objectives by `LENIENCE`. It gets back what is left over, in its turn. Nobody gives
    way in vain: where all that is given in a place makes no room for one pod more, it would only be lost.
    """
    waiting = [each for each in requests if decisions[each.goal.intent].waiting_since is not None]
    if not waiting:
        return []
    sharing = _group_by_resource(
        (each for each in requests if _can_yield(decisions[each.goal.intent])), capacity
    )
    found: dict[str, PlanRequest] = {}
    for claim in sorted(waiting, key=lambda each: (-each.goal.priority, each.goal.intent)):
        offers = {
            place: givers
            for place in sorted(_shared_resources(claim, capacity) & sharing.keys())
            if (givers := _select_yielding(claim, sharing[place], place, capacity))
        }
        if offers:
            place = min(offers, key=lambda each: len(offers[each]))
            found |= {each.goal.intent: _with_yield_tolerance(each) for each in offers[place]}
            del sharing[place]  # what is given there is spoken for
    return list(found.values())


def _can_yield(decision: PlanDecision) -> bool:
    return decision.waiting_since is None and not decision.plan.actions


def _select_yielding(
    request: PlanRequest, others: Iterable[PlanRequest], place: SharedResource, capacity: Capacity
) -> list[PlanRequest]:
    """Who has to give way in a place so that a pod more fits in, least important first; nobody where that is too much."""
    cpu, memory = request.state.requests_per_pod()
    if memory > place.free_memory(capacity):
        # Those who give way give cores: without the memory for a pod, they would give them in vain.
        return []
    lacking = cpu - place.free_cpu(capacity)
    stake = request.goal.priority * PREEMPTION_RATIO
    found: list[PlanRequest] = []
    for other in sorted(others, key=lambda each: (each.goal.priority, each.goal.intent)):
        stake -= other.goal.priority
        if lacking <= 0 or stake < 0:
            break
        found.append(other)
        lacking -= place.cpu_held_by(other) / YIELD_DIVISOR
    return found if lacking <= 0 else []


def _group_by_resource(
    requests: Iterable[PlanRequest], capacity: Capacity
) -> dict[SharedResource, list[PlanRequest]]:
    """Who is where."""
    found: dict[SharedResource, list[PlanRequest]] = defaultdict(list)
    for claim in requests:
        for place in _shared_resources(claim, capacity):
            found[place].append(claim)
    return found


def _shared_resources(request: PlanRequest, capacity: Capacity) -> set[SharedResource]:
    """What a claim shares with others: nodes, and a quota where there is one. Whose pods have no node could have any that is not
    closed to them; those that are not even made lack something else.
    """
    nodes = {pod.node for pod in request.state.pods}
    anywhere = request.state.unplaced and "" in nodes
    nodes = set(capacity.nodes) - request.state.excluded_nodes if anywhere else nodes - {""}
    places = {SharedResource("node", node) for node in nodes}
    if capacity.has_quota(request.goal.namespace):
        places.add(SharedResource("quota", request.goal.namespace))
    return places


def _with_yield_tolerance(request: PlanRequest) -> PlanRequest:
    objectives = tuple(
        each
        if each.kind is KPIType.AVAILABILITY
        else replace(each, value=replace(each, tolerance=YIELD_TOLERANCE).worst_acceptable)
        for each in request.goal.objectives
    )
    return replace(request, goal=replace(request.goal, objectives=objectives))


def has_missed_objective(request: PlanRequest) -> bool:
    """Whether anything is known to be missed: only then is more wanted."""
    return any(
        objective.evaluate(request.state.objectives.get(objective.name)) is ObjectiveVerdict.MISSED
        for objective in request.goal.objectives
    )


def needs_unplaced_pods(request: PlanRequest) -> bool:
    """Whether pods that find no room are needed: all is not known to be well without them."""
    return request.state.unplaced > 0 and not all(
        objective.evaluate(request.state.objectives.get(objective.name)) is ObjectiveVerdict.MET
        for objective in request.goal.objectives
    )


def _fits(plan: Plan, request: PlanRequest, capacity: Capacity) -> bool:
    return not plan.actions or capacity.fits(request.state, plan.actions[-1].after, request.goal.namespace)
