"""Arbitration: many intents at once, who share nodes and quotas.

Those of a higher priority plan first, with all the room; the others with what is left. Who waits for room gains rank
with time, so that nobody waits for ever: after `patience` seconds the least important goes before the most important
that does not wait. Where a clearly more important one waits, those below it on the same nodes or quota give way: a
rung at a time, down to their limits. Who has pods that no node has room for waits too, though nothing may be known of
its objectives: else one whose pods never ran would be passed over for ever.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from trimtab.api.intent import Verdict
from trimtab.api.kpiprofile import KPIType
from trimtab.intents.effects.model import Effects
from trimtab.intents.limits import Limits
from trimtab.intents.objective import Goal
from trimtab.intents.plan import Plan, Purpose
from trimtab.intents.room import Room, taken
from trimtab.intents.state import State

PATIENCE = 3600.0
"""Seconds of waiting that are worth as much as the whole range of priorities."""
CLEARLY_LESS = 0.5
"""Who has at most this share of another's priority gives way to it."""
LENIENCE = 2.0
"""By which factor those who give way may miss what they want."""
RUNG = 4.0
"""The share of its cores that one who gives way is thought to give at once: one in so many."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One intent that is to be planned for."""

    goal: Goal
    state: State
    effects: Effects = Effects()
    limits: Limits = Limits()
    waiting_since: float | None = None
    """Since when it has waited for room; None: it does not."""


class Ruling(NamedTuple):
    plan: Plan
    waiting_since: float | None
    """To be remembered for the next cycle."""


MakePlan = Callable[[Claim, Limits], Plan]


def rank(claim: Claim, *, now: float, patience: float = PATIENCE) -> float:
    """Who goes first: the priority, and what waiting adds to it."""
    waited = 0.0 if claim.waiting_since is None else max(0.0, now - claim.waiting_since)
    return claim.goal.priority + waited / patience


def in_order(claims: Iterable[Claim], *, now: float, patience: float = PATIENCE) -> list[Claim]:
    return sorted(claims, key=lambda claim: (-rank(claim, now=now, patience=patience), claim.goal.intent))


def arbitrate(
    claims: Sequence[Claim], *, room: Room, make: MakePlan, now: float, patience: float = PATIENCE
) -> dict[str, Ruling]:
    """A plan for each intent; together they take no more than there is."""
    rulings = {
        claim.goal.intent: settle(claim, room=room, make=make, now=now)
        for claim in in_order(claims, now=now, patience=patience)
    }
    for claim in give_way(claims, rulings, room=room, make=make):
        plan = make(claim, replace(claim.limits, explore=True))
        if plan.purpose is Purpose.RELEASE:
            rulings[claim.goal.intent] = Ruling(replace(plan, purpose=Purpose.YIELD), None)
    return rulings


def settle(claim: Claim, *, room: Room, make: MakePlan, now: float) -> Ruling:
    """The plan of the next in order, booked."""
    namespace = claim.goal.namespace
    limits = room.narrowed(claim.limits, claim.state, namespace)
    plan = make(claim, limits)
    if not _fits(plan, claim, room):
        # Larger pods are harder to place: then either more of them or larger ones.
        stay = replace(limits, more_cpu_in_place=0.0, more_memory_in_place=0.0)
        for narrower in (stay, replace(limits, more_pods=0.0), replace(stay, more_pods=0.0)):
            plan = make(claim, narrower)
            if _fits(plan, claim, room):
                break
    if plan.deeds:
        room.take(claim.state, plan.deeds[-1].after, namespace)
    if not (waits_for_a_place(claim) and not plan.deeds) and (
        plan.purpose is Purpose.REACH or not missed(claim) or not _lacks_room(claim, plan, make)
    ):
        return Ruling(plan, None)
    since = claim.waiting_since if claim.waiting_since is not None else now
    return Ruling(replace(plan, why=(*plan.why, "it waits for room on its nodes or in its quota")), since)


def _lacks_room(claim: Claim, plan: Plan, make: MakePlan) -> bool:
    """Whether it would take more if there were more: what is out of reach anyhow is not worth waiting for."""
    wish = make(claim, claim.limits)
    if not wish.deeds:
        return False
    had = taken(claim.state, plan.deeds[-1].after)[0] if plan.deeds else 0.0
    return taken(claim.state, wish.deeds[-1].after)[0] > had


def give_way(
    claims: Sequence[Claim], rulings: Mapping[str, Ruling], *, room: Room, make: MakePlan
) -> list[Claim]:
    """Those who are to give way, as claims of less: until what the waiting ones lack is covered, least important first.

    Who gives way may miss its own objectives by `LENIENCE`. It gets back what is left over, in its turn. Nobody gives
    way in vain: where all that is given makes no room for one pod more, it would only be lost.
    """
    waiting = [each for each in claims if rulings[each.goal.intent].waiting_since is not None]
    if not waiting:
        return []
    found: dict[str, Claim] = {}
    sharing = _sharing(claims, room)
    for claim in sorted(waiting, key=lambda each: (-each.goal.priority, each.goal.intent)):
        wish = make(claim, claim.limits)
        lacking = taken(claim.state, wish.deeds[-1].after)[0] if wish.deeds else 0.0
        lacking += claim.state.requested()[0] * claim.state.unplaced
        others = {each.goal.intent: each for place in _places(claim, room) for each in sharing[place]}
        giving: dict[str, Claim] = {}
        for name, other in sorted(others.items(), key=lambda item: (item[1].goal.priority, item[0])):
            if lacking <= 0 or other.goal.priority > claim.goal.priority * CLEARLY_LESS:
                break
            if name in found or rulings[name].plan.deeds:
                continue
            giving[name] = _lenient(other)
            lacking -= other.state.requested()[0] * other.state.replicas / RUNG
        if _helps(claim, giving.values(), room):
            found |= giving
    return list(found.values())


def _helps(claim: Claim, giving: Iterable[Claim], room: Room) -> bool:
    """Whether what these give makes room for one pod more on a node, or in the quota."""
    left = {f"node {node}": room.left(node) for node in room.nodes}
    left[f"quota {claim.goal.namespace}"] = room.left_of_quota(claim.goal.namespace)
    for each in giving:
        given = each.state.requested()[0] / RUNG
        left[f"quota {each.goal.namespace}"] = (
            left.get(f"quota {each.goal.namespace}", 0.0) + given * each.state.replicas
        )
        for pod in each.state.pods:
            if (place := f"node {pod.node}") in left:
                left[place] += given
    size = claim.state.requested()[0]
    return any(left.get(place, 0.0) >= size for place in _places(claim, room))


def _sharing(claims: Iterable[Claim], room: Room) -> dict[str, list[Claim]]:
    """Who is where."""
    found: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        for place in _places(claim, room):
            found[place].append(claim)
    return found


def _places(claim: Claim, room: Room) -> set[str]:
    """What a claim shares with others: nodes, and a quota where there is one. Whose pods have no place could have any."""
    nodes = room.nodes if claim.state.unplaced else {pod.node for pod in claim.state.pods if pod.node}
    places = {f"node {node}" for node in nodes}
    if room.has_quota(claim.goal.namespace):
        places.add(f"quota {claim.goal.namespace}")
    return places


def _lenient(claim: Claim) -> Claim:
    objectives = tuple(
        replace(each, value=each.value * LENIENCE if each.less_is_better else each.value / LENIENCE)
        for each in claim.goal.objectives
        if each.kind is not KPIType.AVAILABILITY
    ) + tuple(each for each in claim.goal.objectives if each.kind is KPIType.AVAILABILITY)
    return replace(claim, goal=replace(claim.goal, objectives=objectives))


def missed(claim: Claim) -> bool:
    """Whether anything is known to be missed: only then is more wanted."""
    return any(
        objective.verdict(claim.state.objectives.get(objective.name)) is Verdict.MISSED
        for objective in claim.goal.objectives
    )


def waits_for_a_place(claim: Claim) -> bool:
    """Whether pods that find no room are needed: all is not known to be well without them."""
    return claim.state.unplaced > 0 and not all(
        objective.verdict(claim.state.objectives.get(objective.name)) is Verdict.MET
        for objective in claim.goal.objectives
    )


def _fits(plan: Plan, claim: Claim, room: Room) -> bool:
    return not plan.deeds or room.fits(claim.state, plan.deeds[-1].after, claim.goal.namespace)
