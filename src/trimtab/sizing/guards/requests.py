"""Guards on a request: whether a change is worth making, how far it may go, and what it must not pass.

**Change size**: the deadband, the least change and the largest step, and rounding to readable amounts.

**Floors** never increase anything: they only stop a decrease, however low the usual usage is. `safe_minimum` is the only
place that knows the container's own need; here its surroundings are added: earlier proposals and an autoscaler's target.

**Caps**: the policy's bounds, the namespace's LimitRange and quota, and the largest nodes. Bounds and LimitRange hold
whatever the usage; if they contradict each other, `check_conflict` reports it and nothing is changed. Quota and nodes
only stop growth: whatever runs already fits.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from trimtab.api.optimizationpolicy import LimitMode
from trimtab.api.quantity import MIB, ResourceName, format_step
from trimtab.plural import pluralize
from trimtab.sizing.constraints import AutoscalerConstraint
from trimtab.sizing.evidence import HISTORY, NO_DECREASE, SafeMinimum, safe_minimums
from trimtab.sizing.guards.context import LET_LIMITS_FOLLOW_REMEDY, GuardContext, GuardStep, NoChange
from trimtab.sizing.proposal import ROUNDING_TOLERANCE

RESTART_FACTOR = 1.25
"""The factor by which a change must be larger to be worth a restart of pods."""


def apply_deadband(amount: int, context: GuardContext) -> GuardStep | None:
    """Keep a request that lies in the strategy's plausible range."""
    request, ask = context.request, context.proposed
    # A second band beside the policy's own would mask changes.minimum.
    if ask.damps_changes:
        return None
    if request is not None and amount != request and ask.lower <= request <= ask.upper:
        why = (
            f"the current request is within the range of the strategy, {_format_bound(context.resource, ask.lower)} to "
            f"{_format_bound(context.resource, ask.upper)}"
        )
        return GuardStep(request, why, "strategy")
    return None


def apply_largest_step(amount: int, context: GuardContext) -> GuardStep | None:
    """Limit the size of one change; more may follow once this one has proved harmless."""
    request, rule = context.request, context.rule
    if request is None:
        return None
    # A share of a very small request is nothing, so that at least one unit is allowed: otherwise it could
    # never change.
    highest = max(int(request * (1 + rule.max_increase)), request + 1)
    if amount > highest:
        return GuardStep(
            highest, f"one change adds at most {rule.max_increase:.0%}", f"policy changes.{context.resource}"
        )
    lowest = min(ceil(request * (1 - rule.max_decrease)), request - bool(rule.max_decrease))
    if amount < lowest:
        return GuardStep(
            lowest,
            f"one change removes at most {rule.max_decrease:.0%}",
            f"policy changes.{context.resource}",
        )
    return None


def apply_minimum_change(amount: int, context: GuardContext) -> GuardStep | None:
    """Skip a change that is too small to be worth its cost, as a share of the target and as an amount.

    The whole distance counts: if only the next step did, a policy that allows small steps only would take
    none.
    """
    request = context.request
    if request is None or amount == request:
        return None
    if is_below_minimum_change(request, amount, context):
        return GuardStep(
            request,
            f"the request differs from the target by {abs(amount - request) / amount:.0%}, too little to be worth a change",
            "policy changes.minimum",
        )
    return None


def is_below_minimum_change(before: int, after: int, context: GuardContext) -> bool:
    """Return whether a change is not worth making; one that restarts pods must be larger."""
    factor = RESTART_FACTOR if context.restarts_container else 1.0
    # A share of the target, not of the request: waste and shortage of the same share of the need count alike.
    return abs(after - before) < factor * max(context.rule.min_change, after * context.rules.minimum_change)


def apply_rounding(amount: int, context: GuardContext) -> GuardStep | None:
    """Round up to a readable number, so that the need stays covered; an unchanged amount is not rounded.

    A small decrease is not rounded up to the current amount or more.
    """
    rounded = round_up(context.resource, amount)
    if amount in {rounded, context.request} or amount < (context.request or 0) <= rounded:
        return None
    return GuardStep(rounded, "rounded up", "rounding")


def round_up(resource: ResourceName, amount: int) -> int:
    """Round memory up to a MiB; CPU to a millicore, from 100m on to two digits, and to half a step if the
    first digit is 1.
    """
    if resource == "memory":
        return -(-amount // MIB) * MIB
    if amount < 100:
        return amount
    step = _cpu_rounding_step(amount)
    return -(-amount // step) * step


def round_down(resource: ResourceName, amount: int) -> int:
    """Round to the largest readable amount that is not above this one, for what must fit into something."""
    if resource == "memory":
        return amount // MIB * MIB or amount
    return amount if amount < 100 else amount // _cpu_rounding_step(amount) * _cpu_rounding_step(amount)


def round_nearest(resource: ResourceName, amount: int) -> int:
    """Round to the nearest readable amount, for a ratio that must not creep up over many changes."""
    up, down = round_up(resource, amount), round_down(resource, amount)
    return down if amount - down < up - amount else up


def _cpu_rounding_step(amount: int) -> int:
    step: int = 10 ** (len(str(amount)) - 2)
    return step // 2 if amount < 20 * step else step


def _format_bound(resource: ResourceName, amount: float) -> str:
    return format_step(resource, round(amount)) if amount < 1e15 else "any amount"


HOUR = 3600.0
UTILIZATION = "utilization"


def list_floors(context: GuardContext) -> tuple[SafeMinimum, ...]:
    """List all floors of one resource, in the order in which an explanation names them."""
    around = (found for floor in CONSTRAINT_FLOORS if (found := floor(context)) is not None)
    return (*safe_minimums(context), *around)


def check_stabilization(context: GuardContext) -> SafeMinimum | None:
    """Lower a request only to the highest recent proposal: capacity released at night may be gone in the
    morning.
    """
    window = context.rules.stabilization
    # Both ends of the window lie within an hour: counted by its length alone, the oldest hour would be left
    # out.
    hours = int(context.now // HOUR - (context.now - window) // HOUR) + 1 if window else 0
    highest = max(context.proposed.recent[:hours], default=0.0)
    # A forecast for the whole window moves with the window: good enough in place, but not where each move is
    # a restart.
    if not highest or (context.proposed.covers_stabilization and not context.restarts_container):
        return None
    why = f"the highest proposal of the last {window / HOUR:g} h"
    return _build_request_floor(
        "stabilization", ceil(highest - ROUNDING_TOLERANCE), why, "policy changes.stabilization"
    )


def check_utilization(context: GuardContext) -> SafeMinimum | None:
    """Keep an autoscaler's utilization at or below its target, because it answers a smaller request with more
    replicas.

    Every container of the pod may shrink by the same share, the one that brings the utilization up to the
    target, so that the pod's utilization stays at or below it whichever of them do. The autoscaler's last
    value may be from a quiet hour, so the container's own recent peak must fit under the target as well.
    """
    found = [
        _check_autoscaler(scaler, context)
        for scaler in context.constraints.autoscalers
        if scaler.resource == context.resource and scaler.container in {None, context.container}
    ]
    return max(found, key=lambda floor: floor.amount, default=None)


def _check_autoscaler(scaler: AutoscalerConstraint, context: GuardContext) -> SafeMinimum:
    source, target = f"HPA {scaler.name}", scaler.target
    if scaler.highest_seen is None:
        return _build_request_floor(
            UTILIZATION, NO_DECREASE, "the utilization that the HPA measures is unknown", source
        )
    # At its target, the autoscaler answers any decrease with another replica.
    if scaler.highest_seen >= target:
        why = f"the HPA measures {scaler.highest_seen:.0%} of utilization, and its target is {target:.0%}"
        return _build_request_floor(UTILIZATION, NO_DECREASE, why, source)
    highest = context.evidence.cpu_peak if context.resource == "cpu" else context.evidence.memory_peak
    # Autoscalers divide usage by the request, so that usage divided by the target is the least request.
    least = max((context.request or 0) * scaler.highest_seen, highest or 0) / target
    return _build_request_floor(
        UTILIZATION, ceil(least), f"keeps the HPA's utilization at or below {target:.0%}", source
    )


def _build_request_floor(name: str, amount: int, why: str, source: str) -> SafeMinimum:
    """Return a floor of the request alone: none of these is about the container's own need."""
    return SafeMinimum(name, amount, why, source, binds_limit=False)


CONSTRAINT_FLOORS: tuple[Callable[[GuardContext], SafeMinimum | None], ...] = (
    check_stabilization,
    check_utilization,
)


LIMIT_SETTING_MODES = frozenset({LimitMode.MULTIPLIER, LimitMode.HEADROOM})
"""The modes in which the policy gives every container a limit."""


def apply_bounds(amount: int, context: GuardContext) -> GuardStep | None:
    """Apply the policy's own bounds."""
    rule, source = context.rule, f"policy {context.rule.bounds_field}.{context.resource}"
    if amount < rule.min_request:
        return GuardStep(
            rule.min_request, f"at least {format_step(context.resource, rule.min_request)}", source
        )
    if rule.max_request is not None and amount > rule.max_request:
        return GuardStep(
            rule.max_request, f"at most {format_step(context.resource, rule.max_request)}", source
        )
    return None


def apply_limit_range(amount: int, context: GuardContext) -> GuardStep | NoChange | None:
    """Stay within the LimitRanges, because admission would reject the pod otherwise."""
    least, most = compute_admitted_range(context)
    if most is not None and most < max(least, 1):
        return NoChange(
            "the other containers of the pod use up what the LimitRange permits for a pod", "LimitRange"
        )
    if amount < least:
        return GuardStep(
            least, f"the LimitRange requires at least {format_step(context.resource, least)}", "LimitRange"
        )
    if most is not None and amount > most:
        return GuardStep(
            most, f"the LimitRange allows at most {format_step(context.resource, most)}", "LimitRange"
        )
    return None


def compute_admitted_range(context: GuardContext) -> tuple[int, int | None]:
    """Return the least and the most that the LimitRanges leave to this container beside the others of its
    pod.
    """
    mine, pod = context.container_range, context.pod_range
    least = max(mine.min, pod.min - context.others_request)
    most = mine.max
    if pod.max is not None:
        # Rounded down, because the next readable amount would already exceed what the namespace admits.
        rest = round_down(context.resource, max(pod.max - context.others_request, 0))
        most = rest if most is None else min(most, rest)
    return least, most


def apply_kept_limit(amount: int, context: GuardContext) -> GuardStep | None:
    """Keep the request at or below its limit: a kept one, or the namespace's default for containers without
    one.
    """
    limit, source = context.limit, "limit"
    if limit is None and not _will_get_limit(context):
        default, source = context.container_range.default, "LimitRange default"
        limit = None if default is None else max(default, context.request or 0)  # Whatever runs was admitted.
    elif not context.keeps_limit:
        return None
    if limit is None or amount <= limit:
        return None
    why = (
        f"the limit stays at {format_step(context.resource, limit)}; to go further {LET_LIMITS_FOLLOW_REMEDY}"
    )
    return GuardStep(limit, why, source)


def _will_get_limit(context: GuardContext) -> bool:
    """Return whether a container without a limit gets one now: not before enough is known about its peaks."""
    if context.rule.limit not in LIMIT_SETTING_MODES:
        return False
    found = (each for each in safe_minimums(context) if each.binds_limit)
    return not any(each.amount == NO_DECREASE or each.name == HISTORY for each in found)


def apply_node_capacity(amount: int, context: GuardContext) -> GuardStep | NoChange | None:
    """Stay within the capacity of the largest node: a larger pod would never run."""
    nodes = context.constraints.nodes
    if not nodes or amount <= (context.request or 0):
        return None
    is_cpu, other = context.resource == "cpu", context.other_resource_request
    # A node counts only if it can hold the other resource as well: the one with most CPU may be short of memory.
    amounts = [
        node.cpu if is_cpu else node.memory
        for node in nodes
        if (node.memory if is_cpu else node.cpu) >= other
    ]
    most = max(amounts, default=0)
    why = "the largest node has no more capacity for this pod"
    return _cap_growth(amount, most - context.others_request, context, why=why, source="nodes")


def apply_quota(amount: int, context: GuardContext) -> GuardStep | NoChange | None:
    """Stay within the remaining quota of the namespace, divided among the replicas."""
    around, left = context.constraints, context.quota.request
    if left is None:
        return None
    # Every replica grows by the same amount. A quota that was lowered below its usage leaves a negative rest.
    most = (context.request or 0) + max(left, 0) // max(around.replicas, 1)
    why = f"the ResourceQuota has {format_step(context.resource, left)} left for {pluralize(around.replicas, 'replica')}"
    return _cap_growth(amount, most, context, why=why, source="ResourceQuota")


def _cap_growth(
    amount: int, most: int, context: GuardContext, *, why: str, source: str
) -> GuardStep | NoChange | None:
    # What runs already was admitted, so that a full quota must not make it smaller.
    stop = max(round_down(context.resource, max(most, 0)), context.request or 0)
    if amount <= stop:
        return None
    return GuardStep(stop, why, source) if stop > 0 else NoChange(why, source)
