"""Caps on a request: the policy's bounds, the namespace's LimitRange and quota, and the largest nodes.

Bounds and LimitRange hold whatever the usage; if they contradict each other, `check_conflict` reports it and
nothing is changed. Quota and nodes only stop growth: whatever runs already fits.
"""

from __future__ import annotations

from trimtab.api.format import format_step
from trimtab.api.optimizationpolicy import LimitMode
from trimtab.sizing.guards.change_size import round_down
from trimtab.sizing.guards.context import LET_LIMITS_FOLLOW_REMEDY, GuardContext, GuardStep, NoChange
from trimtab.sizing.safe_minimum import NO_DECREASE, safe_minimums

LIMIT_SETTING_MODES = frozenset({LimitMode.MULTIPLIER, LimitMode.HEADROOM})
"""The modes in which the policy gives every container a limit."""


def apply_bounds(amount: int, case: GuardContext) -> GuardStep | None:
    """Apply the policy's own bounds."""
    rule, source = case.rule, f"policy {case.rule.bounds_field}.{case.resource}"
    if amount < rule.min_request:
        return GuardStep(rule.min_request, f"at least {format_step(case.resource, rule.min_request)}", source)
    if rule.max_request is not None and amount > rule.max_request:
        return GuardStep(rule.max_request, f"at most {format_step(case.resource, rule.max_request)}", source)
    return None


def apply_limit_range(amount: int, case: GuardContext) -> GuardStep | NoChange | None:
    """Stay within the LimitRanges, because admission would reject the pod otherwise."""
    least, most = compute_admitted_range(case)
    if most is not None and most < max(least, 1):
        return NoChange(
            "the namespace leaves nothing to this container beside the others of its pod", "LimitRange"
        )
    if amount < least:
        return GuardStep(
            least, f"at least {format_step(case.resource, least)} in this namespace", "LimitRange"
        )
    if most is not None and amount > most:
        return GuardStep(most, f"at most {format_step(case.resource, most)} in this namespace", "LimitRange")
    return None


def compute_admitted_range(case: GuardContext) -> tuple[int, int | None]:
    """Return the least and the most that the LimitRanges leave to this container beside the others of its
    pod.
    """
    mine, pod = case.container_range, case.pod_range
    least = max(mine.min, pod.min - case.others_request)
    most = mine.max
    if pod.max is not None:
        # Rounded down, because the next readable amount would already exceed what the namespace admits.
        rest = round_down(case.resource, max(pod.max - case.others_request, 0))
        most = rest if most is None else min(most, rest)
    return least, most


def apply_kept_limit(amount: int, case: GuardContext) -> GuardStep | None:
    """Keep the request at or below its limit: a kept one, or the namespace's default for containers without
    one.
    """
    limit, source = case.limit, "limit"
    if limit is None and not _will_get_limit(case):
        default, source = case.container_range.default, "LimitRange default"
        limit = None if default is None else max(default, case.request or 0)  # Whatever runs was admitted.
    elif case.rule.limit is not LimitMode.KEEP:
        return None
    if limit is None or amount <= limit:
        return None
    why = f"the limit stays at {format_step(case.resource, limit)}; to go further {LET_LIMITS_FOLLOW_REMEDY}"
    return GuardStep(limit, why, source)


def _will_get_limit(case: GuardContext) -> bool:
    """Return whether a container without a limit gets one now: not before enough is known about its peaks."""
    if case.rule.limit not in LIMIT_SETTING_MODES:
        return False
    return not any(each.amount == NO_DECREASE for each in safe_minimums(case) if each.binds_limit)


def apply_node_capacity(amount: int, case: GuardContext) -> GuardStep | NoChange | None:
    """Stay within the capacity of the largest node: a larger pod would never run."""
    rooms = case.constraints.nodes
    if not rooms:
        return None
    if case.resource == "cpu":
        # A node counts only if it can hold the other resource as well: the one with most CPU may be short of
        # memory.
        most = max((room.cpu for room in rooms if room.memory >= case.other_resource_request), default=0)
    else:
        most = max((room.memory for room in rooms if room.cpu >= case.other_resource_request), default=0)
    why = "the largest node has no more for this pod"
    return _cap_growth(amount, most - case.others_request, case, why=why, source="nodes")


def apply_quota(amount: int, case: GuardContext) -> GuardStep | NoChange | None:
    """Stay within the remaining quota of the namespace, divided among the replicas."""
    around = case.constraints
    left = around.quota.select(case.resource).request
    if left is None:
        return None
    # Every replica grows by the same amount. A quota that was lowered below its usage leaves a negative rest.
    most = (case.request or 0) + max(left, 0) // max(around.replicas, 1)
    why = f"{format_step(case.resource, left)} of quota are left for {around.replicas} replicas"
    return _cap_growth(amount, most, case, why=why, source="ResourceQuota")


def _cap_growth(
    amount: int, most: int, case: GuardContext, *, why: str, source: str
) -> GuardStep | NoChange | None:
    # What runs already was admitted, so that a full quota must not make it smaller.
    stop = max(round_down(case.resource, max(most, 0)), case.request or 0)
    if amount <= stop:
        return None
    return GuardStep(stop, why, source) if stop > 0 else NoChange(why, source)
