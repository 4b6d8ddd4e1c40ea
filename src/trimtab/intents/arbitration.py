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

from trimtab.api.intent import Verdict
from trimtab.api.kpiprofile import KPIType
from trimtab.intents.capacity import Room, taken
from trimtab.intents.constraints import Limits
from trimtab.intents.effects.model import Effects
from trimtab.intents.objective import Goal
from trimtab.intents.plan import Plan, Purpose
from trimtab.intents.state import State

PATIENCE = 3600.0
"""Seconds of waiting that are worth as much as the whole range of priorities."""
CLEARLY_LESS = 0.5
"""Those who have together at most this share of another's priority give way to it."""
LENIENCE = 0.2
"""By which share of it those who give way may miss what they want."""
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


class Place(NamedTuple):
    """A node, or the quota of a namespace."""

    kind: Literal["node", "quota"]
    name: str

    def left(self, room: Room) -> float:
        """Cores."""
        return room.left(self.name) if self.kind == "node" else room.left_of_quota(self.name)

    def memory_left(self, room: Room) -> float:
        """Bytes."""
        left = room.memory_left if self.kind == "node" else room.memory_left_of_quota
        return left(self.name)

    def held_by(self, claim: Claim) -> float:
        """The cores that it has here."""
        state = claim.state
        here = sum(pod.node == self.name for pod in state.pods) if self.kind == "node" else state.replicas
        return state.requested()[0] * here


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
    for claim in give_way(claims, rulings, room=room):
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


def give_way(claims: Sequence[Claim], rulings: Mapping[str, Ruling], *, room: Room) -> list[Claim]:
    """Those who are to give way, as claims of less: for each that waits, those of one node or quota.

    Who gives way may miss its own objectives by `LENIENCE`. It gets back what is left over, in its turn. Nobody gives
    way in vain: where all that is given in a place makes no room for one pod more, it would only be lost.
    """
    waiting = [each for each in claims if rulings[each.goal.intent].waiting_since is not None]
    if not waiting:
        return []
    sharing = _sharing((each for each in claims if _can_give(rulings[each.goal.intent])), room)
    found: dict[str, Claim] = {}
    for claim in sorted(waiting, key=lambda each: (-each.goal.priority, each.goal.intent)):
        offers = {
            place: givers
            for place in sorted(_places(claim, room) & sharing.keys())
            if (givers := _givers(claim, sharing[place], place, room))
        }
        if offers:
            place = min(offers, key=lambda each: len(offers[each]))
            found |= {each.goal.intent: _lenient(each) for each in offers[place]}
            del sharing[place]  # what is given there is spoken for
    return list(found.values())


def _can_give(ruling: Ruling) -> bool:
    return ruling.waiting_since is None and not ruling.plan.deeds


def _givers(claim: Claim, others: Iterable[Claim], place: Place, room: Room) -> list[Claim]:
    """Who has to give way in a place so that a pod more fits in, least important first; nobody where that is too much."""
    cpu, memory = claim.state.requested()
    if memory > place.memory_left(room):
        # Those who give way give cores: without the memory for a pod, they would give them in vain.
        return []
    lacking = cpu - place.left(room)
    stake = claim.goal.priority * CLEARLY_LESS
    found: list[Claim] = []
    for other in sorted(others, key=lambda each: (each.goal.priority, each.goal.intent)):
        stake -= other.goal.priority
        if lacking <= 0 or stake < 0:
            break
        found.append(other)
        lacking -= place.held_by(other) / RUNG
    return found if lacking <= 0 else []


def _sharing(claims: Iterable[Claim], room: Room) -> dict[Place, list[Claim]]:
    """Who is where."""
    found: dict[Place, list[Claim]] = defaultdict(list)
    for claim in claims:
        for place in _places(claim, room):
            found[place].append(claim)
    return found


def _places(claim: Claim, room: Room) -> set[Place]:
    """What a claim shares with others: nodes, and a quota where there is one. Whose pods have no node could have any that is not
    closed to them; those that are not even made lack something else.
    """
    nodes = {pod.node for pod in claim.state.pods}
    anywhere = claim.state.unplaced and "" in nodes
    nodes = set(room.nodes) - claim.state.closed if anywhere else nodes - {""}
    places = {Place("node", node) for node in nodes}
    if room.has_quota(claim.goal.namespace):
        places.add(Place("quota", claim.goal.namespace))
    return places


def _lenient(claim: Claim) -> Claim:
    objectives = tuple(
        each
        if each.kind is KPIType.AVAILABILITY
        else replace(each, value=replace(each, tolerance=LENIENCE).bound)
        for each in claim.goal.objectives
    )
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
