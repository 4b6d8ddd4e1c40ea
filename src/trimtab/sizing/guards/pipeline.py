"""One resource of one container through its guards, in an order that is part of the contract.

1. **gate**: enough data, fresh and possible; else nothing is done
2. **strategy**, and its **deadband**
3. **floors**: what a decrease must not go below
4. **smallest change** and **largest step**: whether at all, and how far
5. **after kills**: a raise that waits for none of this
6. **rounding**
7. **caps**: the pod's floor, bounds, LimitRange, a kept limit, nodes, quota
8. **limits**: as the policy says, within what is needed and admitted

What asks for more comes before what forbids. A guard that changed something leaves a line under its own name.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any, TypeVar

from trimtab.sizing.guards import caps, change_size, limits
from trimtab.sizing.guards.context import Case, Guard, Hold, Trail
from trimtab.sizing.guards.data_quality import gate, left_alone
from trimtab.sizing.guards.floors import UTILISATION, floors_of
from trimtab.sizing.guards.limits import Pair
from trimtab.sizing.guards.oom import after_kills, in_vain, unanswered
from trimtab.sizing.proposal import ALMOST
from trimtab.sizing.recommendation import Factor, ResourceName
from trimtab.sizing.safe_minimum import SafeMinimum, is_oom_prone

G = TypeVar("G", bound=Callable[..., Any])


def _named(*guards: G) -> tuple[tuple[str, G], ...]:
    """Guards with the names that their lines bear."""
    return tuple((guard.__name__.replace("_", " "), guard) for guard in guards)


LARGEST_STEP = "largest step"
"""The name that the lines of `change.largest_step` bear."""
DEADBAND: tuple[tuple[str, Guard], ...] = _named(change_size.deadband)
WORTH: tuple[tuple[str, Guard], ...] = _named(change_size.smallest_change, change_size.largest_step)
CAPS: tuple[tuple[str, Guard], ...] = _named(
    change_size.rounding,
    caps.pod_floor,
    caps.bounds,
    caps.admission,
    caps.kept_limit,
    caps.node,
    caps.quota,
)
KILLS: tuple[tuple[str, Guard], ...] = _named(after_kills)
FINAL: dict[ResourceName, tuple[tuple[str, Guard], ...]] = {"cpu": CAPS, "memory": (*KILLS, *CAPS)}
LIMITS = _named(*limits.GUARDS)


def size(case: Case, strategy: str, trail: Trail) -> Pair | None:
    """The new request and limit; None: they stay as they are."""
    pair = _pair(case, strategy, trail)
    if isinstance(pair, Hold):
        trail.hold(case, pair)
        return None
    if pair.request != case.request or pair.limit != case.limit:
        return pair
    if hold := in_vain(case):
        trail.hold(case, hold)
    return None


def _pair(case: Case, strategy: str, trail: Trail) -> Pair | Hold:
    found = floors_of(case)
    lasting = max((floor.amount for floor in found if floor.binds_limit), default=0)
    scaled = max((floor.amount for floor in found if floor.name == UTILISATION), default=0)
    wanted = _wanted(case, found, strategy, trail)
    amount = wanted if isinstance(wanted, Hold) else _through(FINAL[case.resource], wanted, case, trail)
    if isinstance(amount, Hold):
        return amount
    pair = _limited(Pair(amount, case.limit, lasting), case, trail)
    if isinstance(pair, Pair) and pair.request < min(case.request or 0, scaled):
        return Hold("what is admitted is less than its autoscaler allows", "HPA")
    return pair


def _wanted(case: Case, found: tuple[SafeMinimum, ...], strategy: str, trail: Trail) -> int | Hold:
    """What the container should request, before anything forbids it."""
    hold = left_alone(case)
    if hold is not None:
        return unanswered(case, hold) if is_oom_prone(case) else hold
    hold = gate(case)
    if hold is None:
        target = max(ceil(case.ask.target - ALMOST), 1)
        trail.step(case, "strategy", case.request, target, why="target", source=f"strategy {strategy}")
        amount = _through(DEADBAND, target, case, trail)
        return amount if isinstance(amount, Hold) else _worth(amount, case, found, trail)
    amount = case.request or 1
    if not is_oom_prone(case):
        return hold
    trail.factors.append(Factor("memory gate", f"{hold.why}, but it was killed", hold.source))
    return amount


def _worth(amount: int, case: Case, found: tuple[SafeMinimum, ...], trail: Trail) -> int | Hold:
    request = case.request
    if request is None:
        return amount
    for floor in found:
        if amount >= request:
            break
        if not floor.binds_request:
            continue
        least = min(request, floor.amount)
        if amount < least:
            trail.step(case, floor.name, amount, least, why=floor.why, source=floor.source)
            amount = least
    return _through(WORTH, amount, case, trail)


def _through(guards: tuple[tuple[str, Guard], ...], amount: int, case: Case, trail: Trail) -> int | Hold:
    for name, guard in guards:
        answer = guard(amount, case)
        if answer is None:
            continue
        if isinstance(answer, Hold):
            return answer
        trail.step(case, name, amount, answer.amount, why=answer.why, source=answer.source)
        amount = answer.amount
    return amount


def _limited(pair: Pair, case: Case, trail: Trail) -> Pair | Hold:
    for name, guard in LIMITS:
        answer = guard(pair, case)
        if answer is None:
            continue
        if isinstance(answer, Hold):
            return answer
        why, source = answer.why, answer.source
        if answer.limit != pair.limit:
            trail.step(case, f"limit {name}", pair.limit, answer.limit, why=why, source=source)
        if answer.request != pair.request:
            trail.step(case, name, pair.request, answer.request, why=why, source=source)
        if (answer.request, answer.limit) == (pair.request, pair.limit):
            trail.stay(case, f"limit {name}", pair.limit, why=why, source=source)
        pair = Pair(answer.request, answer.limit, pair.floor)
    return pair
