"""Take one resource of one container through its guards, in an order that is part of the contract.

1. **data quality**: enough data, fresh and plausible; else nothing changes
2. **strategy**, and its **deadband**
3. **floors**: what a decrease must not go below
4. **minimum change** and **largest step**: whether at all, and how far
5. **OOM kills**: a raise that waits for none of this
6. **rounding**
7. **caps**: bounds, LimitRange, a kept limit, node capacity, quota
8. **limits**: as the policy says, within what is needed and admitted

Guards that ask for more come before those that forbid. A guard that changed something adds a line under its
own name.
"""

from __future__ import annotations

from math import ceil

from trimtab.api.quantity import ResourceName
from trimtab.sizing.guards import limits, requests
from trimtab.sizing.guards.context import ExplanationBuilder, Guard, GuardContext, NoChange
from trimtab.sizing.guards.data_quality import check_data_quality, exclusion_reason
from trimtab.sizing.guards.limits import RequestLimitPair
from trimtab.sizing.guards.oom import check_unhandled_oom, explain_excluded_oom, raise_after_kills
from trimtab.sizing.guards.requests import UTILISATION, list_floors
from trimtab.sizing.proposal import ROUNDING_TOLERANCE
from trimtab.sizing.recommendation import Factor
from trimtab.sizing.safe_minimum import SafeMinimum, is_oom_prone

LARGEST_STEP = "largest step"
"""The name of the guard that limits the size of one change, as explanations show it."""

# An explanation names each step by the guard that made it, so that these names are part of what users read.
DEADBAND_GUARDS: tuple[tuple[str, Guard], ...] = (("deadband", requests.apply_deadband),)
CHANGE_GUARDS: tuple[tuple[str, Guard], ...] = (
    ("minimum change", requests.apply_minimum_change),
    (LARGEST_STEP, requests.apply_largest_step),
)
CAP_GUARDS: tuple[tuple[str, Guard], ...] = (
    ("rounding", requests.apply_rounding),
    # The caps come after rounding, which may lift an amount above them.
    ("bounds", requests.apply_bounds),
    ("LimitRange", requests.apply_limit_range),
    ("kept limit", requests.apply_kept_limit),
    ("node capacity", requests.apply_node_capacity),
    ("quota", requests.apply_quota),
)
OOM_GUARDS: tuple[tuple[str, Guard], ...] = (("OOM kills", raise_after_kills),)
FINAL_GUARDS: dict[ResourceName, tuple[tuple[str, Guard], ...]] = {
    "cpu": CAP_GUARDS,
    "memory": (*OOM_GUARDS, *CAP_GUARDS),
}
LIMIT_GUARDS: tuple[tuple[str, limits.LimitGuard], ...] = (
    ("policy", limits.follow_policy),
    ("QoS", limits.keep_guaranteed),
    ("minimum", limits.keep_needed_limit),
    ("LimitRange", limits.apply_limit_range),
    ("quota", limits.apply_quota),
    ("ratio", limits.apply_ratio),
    ("alignment", limits.align_request),
    ("conflict", limits.check_conflict),
)


def apply_guards(
    case: GuardContext, strategy: str, explanation: ExplanationBuilder
) -> RequestLimitPair | None:
    """Return the new request and limit; None if they stay as they are."""
    pair = _compute_pair(case, strategy, explanation)
    if isinstance(pair, NoChange):
        explanation.add_no_change(case, pair)
        return None
    if pair.request != case.request or pair.limit != case.limit:
        return pair
    # Otherwise a container that is killed again and again would look as if it had the right size.
    if hold := check_unhandled_oom(case):
        explanation.add_no_change(case, hold)
    return None


def _compute_pair(
    case: GuardContext, strategy: str, trail: ExplanationBuilder
) -> RequestLimitPair | NoChange:
    found = list_floors(case)
    lasting = max((floor.amount for floor in found if floor.binds_limit), default=0)
    scaled = max((floor.amount for floor in found if floor.name == UTILISATION), default=0)
    wanted = _compute_request(case, found, strategy, trail)
    amount = (
        wanted
        if isinstance(wanted, NoChange)
        else _run_guards(FINAL_GUARDS[case.resource], wanted, case, trail)
    )
    if isinstance(amount, NoChange):
        return amount
    pair = _run_limit_guards(RequestLimitPair(amount, case.limit, lasting), case, trail)
    # An autoscaler measures usage as a share of the request: below this amount it would add replicas for the
    # same load.
    if isinstance(pair, RequestLimitPair) and pair.request < min(case.request or 0, scaled):
        return NoChange("what is admitted is less than its autoscaler allows", "HPA")
    return pair


def _compute_request(
    case: GuardContext, found: tuple[SafeMinimum, ...], strategy: str, trail: ExplanationBuilder
) -> int | NoChange:
    """Return the request before any cap applies."""
    hold = exclusion_reason(case)
    if hold is not None:
        return explain_excluded_oom(case, hold) if is_oom_prone(case) else hold
    hold = check_data_quality(case)
    if hold is None:
        # Without the tolerance a target of 100m that arithmetic made 100.0000001m would become 101m.
        target = max(ceil(case.proposed.target - ROUNDING_TOLERANCE), 1)
        trail.add_step(case, "strategy", case.request, target, why="target", source=f"strategy {strategy}")
        amount = _run_guards(DEADBAND_GUARDS, target, case, trail)
        return amount if isinstance(amount, NoChange) else _apply_floors(amount, case, found, trail)
    # A container that is killed early seldom lives for enough samples: waiting for them would let it crash
    # for ever.
    amount = case.request or 1
    if not is_oom_prone(case):
        return hold
    trail.factors.append(Factor("memory data quality", f"{hold.why}, but it was killed", hold.source))
    return amount


def _apply_floors(
    amount: int, case: GuardContext, found: tuple[SafeMinimum, ...], trail: ExplanationBuilder
) -> int | NoChange:
    request = case.request
    if request is None:
        return amount
    for floor in found:
        # Floors only limit decreases: increases are left to the strategy, or old peaks would raise containers
        # that do well.
        if amount >= request:
            break
        if not floor.binds_request:
            continue
        least = min(request, floor.amount)
        if amount < least:
            trail.add_step(case, floor.name, amount, least, why=floor.why, source=floor.source)
            amount = least
    return _run_guards(CHANGE_GUARDS, amount, case, trail)


def _run_guards(
    guards: tuple[tuple[str, Guard], ...], amount: int, case: GuardContext, trail: ExplanationBuilder
) -> int | NoChange:
    for name, guard in guards:
        answer = guard(amount, case)
        if answer is None:
            continue
        if isinstance(answer, NoChange):
            return answer
        trail.add_step(case, name, amount, answer.amount, why=answer.why, source=answer.source)
        amount = answer.amount
    return amount


def _run_limit_guards(
    pair: RequestLimitPair, case: GuardContext, trail: ExplanationBuilder
) -> RequestLimitPair | NoChange:
    for name, guard in LIMIT_GUARDS:
        answer = guard(pair, case)
        if answer is None:
            continue
        if isinstance(answer, NoChange):
            return answer
        why, source = answer.why, answer.source
        if answer.limit != pair.limit:
            trail.add_step(case, f"limit {name}", pair.limit, answer.limit, why=why, source=source)
        if answer.request != pair.request:
            trail.add_step(case, name, pair.request, answer.request, why=why, source=source)
        if (answer.request, answer.limit) == (pair.request, pair.limit):
            trail.add_unchanged(case, f"limit {name}", pair.limit, why=why, source=source)
        pair = RequestLimitPair(answer.request, answer.limit, pair.floor)
    return pair
