"""Compute the limit once its request is known, and adapt the request to its limit.

The policy decides how the limit follows. It is never set below what the container is known to need, nor
outside what the namespace admits; if removing it would only bring in the namespace's default, it stays. If
not everything can be met at once, nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import msgspec

from trimtab.api.optimizationpolicy import LimitMode
from trimtab.api.quantity import format_step
from trimtab.kube.kinds.pod_requests import GUARANTEED
from trimtab.plural import pluralize
from trimtab.sizing.evidence import NO_DECREASE, is_oom_prone, safe_limit, safe_minimums
from trimtab.sizing.guards import requests
from trimtab.sizing.guards.context import GuardContext, NoChange
from trimtab.sizing.guards.oom import min_limit_after_kills
from trimtab.sizing.guards.requests import is_below_minimum_change, round_down, round_nearest, round_up
from trimtab.sizing.policy_rules import describe_qos_obstacle


class RequestLimitPair(msgspec.Struct, frozen=True, gc=False):
    """A request with its limit."""

    request: int
    limit: int | None
    floor: int = 0
    """The least amount of the limit."""


class LimitStep(msgspec.Struct, frozen=True, gc=False):
    """The answer of a guard that changes the request or the limit."""

    request: int
    limit: int | None
    why: str
    source: str


LimitGuard = Callable[[RequestLimitPair, GuardContext], LimitStep | NoChange | None]


def follow_policy(pair: RequestLimitPair, context: GuardContext) -> LimitStep | None:
    """Set the limit that the policy asks for."""
    request, limit, rule = pair.request, pair.limit, context.rule
    wanted, why = limit, ""
    if rule.limit is LimitMode.REMOVE and limit is not None:
        wanted, why = _remove_limit(request, limit, context)
    elif rule.limit is LimitMode.KEEP_RATIO and limit is not None:
        wanted, why = _keep_ratio(request, limit, context)
    elif rule.limit is LimitMode.MULTIPLIER:
        wanted, why = ceil(request * rule.multiplier), f"{rule.multiplier:g} times the request"
    elif rule.limit is LimitMode.HEADROOM:
        wanted, why = (
            request + rule.headroom,
            f"the request and {format_step(context.resource, rule.headroom)}",
        )
    elif limit is not None and rule.limit is LimitMode.KEEP and not context.keeps_limit:
        wanted, why = _raise_kept_limit(limit, context)
    if wanted is not None and wanted not in {request, limit}:
        wanted = round_up(context.resource, wanted)
    if wanted is None or limit is None:
        return None if wanted == limit else _set_limit(pair, context, wanted, why)
    # If the request stays, the final limit is compared: otherwise it would follow each small drop of a peak.
    is_as_it_was = limit >= request == context.request and not is_oom_prone(context)
    if wanted == limit or (
        is_as_it_was and is_below_minimum_change(limit, max(wanted, _limit_floor(pair, context)), context)
    ):
        return None
    return _set_limit(pair, context, wanted, why)


def _keep_ratio(request: int, limit: int, context: GuardContext) -> tuple[int, str]:
    """Return the limit with the present ratio to the request."""
    if context.request and request != context.request:
        wanted = -(-limit * request // context.request)
        # Rounded to the nearest: rounded up with every change, the ratio would creep up.
        wanted = max(round_nearest(context.resource, wanted), request) if wanted != request else wanted
        return wanted, "its ratio to the request is kept"
    if not context.request and is_oom_prone(context):
        # Without a request there is no ratio by which the limit would rise above what killed the container.
        why = "the container was OOM killed at its limit, and has no request to keep a ratio to"
        return min_limit_after_kills(context), why
    return limit, ""


def _raise_kept_limit(limit: int, context: GuardContext) -> tuple[int, str]:
    """Return the limit with which the container would not have been killed, as far as bounds and nodes permit it."""
    raised = min_limit_after_kills(context)
    for cap in (requests.apply_bounds, requests.apply_node_capacity):
        answer = cap(raised, context)
        if isinstance(answer, NoChange):
            return limit, ""
        if answer is not None:
            raised = answer.amount
    return max(raised, limit), "the container was OOM killed at its limit"


def _set_limit(pair: RequestLimitPair, context: GuardContext, wanted: int | None, why: str) -> LimitStep:
    source = f"policy limitPolicy.{context.resource}"
    if pair.limit is None and pair.floor == NO_DECREASE:
        # The peaks are not known yet, and a first limit is a decrease from all that the node has.
        return LimitStep(
            pair.request,
            None,
            f"{why} would be its first limit, and {_missing_evidence_reason(context)}",
            source,
        )
    return LimitStep(pair.request, wanted, why, source)


def _missing_evidence_reason(context: GuardContext) -> str:
    """Return why too little is known about a container to give it a limit."""
    reasons = (each.why for each in safe_minimums(context) if each.binds_limit and each.amount == NO_DECREASE)
    return next(reasons, "too little is known about its usage")


def _remove_limit(request: int, limit: int, context: GuardContext) -> tuple[int | None, str]:
    """Remove the limit, unless the namespace would set another one or reject a pod without one."""
    mine = context.container_range
    enough = max(limit, request, min_limit_after_kills(context))
    if mine.default is not None or mine.max is not None or context.pod_range.max is not None:
        return enough, "kept, because the LimitRange requires a limit"
    if context.quota.limit is not None:
        return enough, "kept, because the ResourceQuota requires a limit"
    if is_oom_prone(context):  # A limit can be raised in place and at once, but not removed in place.
        return enough, "raised first: the container was OOM killed at it, and removing it takes a restart"
    return None, "removed"


def keep_guaranteed(pair: RequestLimitPair, context: GuardContext) -> LimitStep | NoChange | None:
    """Keep limit and request equal in a Guaranteed pod."""
    if not context.must_stay_guaranteed:
        return None
    if context.keeps_limit:
        if pair.request == context.request:
            return None
        why = describe_qos_obstacle(GUARANTEED, keeps_qos=True, keeps_limits=True)
        return NoChange(why, "policy updateStrategy.updateRequestsOnly")
    if pair.limit == pair.request:
        return None
    return LimitStep(pair.request, pair.request, "equals the request: the pod stays Guaranteed", "QoS class")


def keep_needed_limit(pair: RequestLimitPair, context: GuardContext) -> LimitStep | None:
    """Keep the limit at or above what the container is known to need."""
    if pair.limit is None or context.keeps_limit:
        return None
    least = _limit_floor(pair, context)
    if pair.limit >= least:
        return None
    highest = safe_limit(context)
    if highest is None or round_up(context.resource, highest.amount) < least:
        return LimitStep(pair.request, least, "not below the known need", "usage")
    return LimitStep(pair.request, least, f"not below the known need: {highest.why}", highest.source)


def apply_limit_range(pair: RequestLimitPair, context: GuardContext) -> LimitStep | NoChange | None:
    """Stay within what the LimitRange admits."""
    if pair.limit is None:
        return None
    mine, pod = context.container_range, context.pod_range
    limit = max(pair.limit, mine.min)
    if mine.max is not None:
        limit = min(limit, mine.max)
    if pod.max is not None:
        # The others of the pod may already use more than was admitted, if the LimitRange came after them.
        limit = min(limit, round_down(context.resource, max(pod.max - context.others_limit, 0)))
    if limit == pair.limit:
        return None
    if context.keeps_limit:
        return NoChange("the policy keeps the limit, and the LimitRange does not admit it", "LimitRange")
    # A limit of 0 means no limit to Kubernetes, which is the opposite of what is left here.
    if limit < 1:
        return NoChange(
            "the other containers of the pod use up what the LimitRange permits for a pod", "LimitRange"
        )
    return LimitStep(pair.request, limit, "moved into the range that the LimitRange admits", "LimitRange")


def apply_quota(pair: RequestLimitPair, context: GuardContext) -> LimitStep | NoChange | None:
    """Grow only by the remaining quota on limits."""
    around, had, left = context.constraints, context.limit or 0, context.quota.limit
    if left is None or pair.limit is None:
        return None
    most = max(round_down(context.resource, had + max(left, 0) // max(around.replicas, 1)), had)
    if pair.limit <= most:
        return None
    why = f"the ResourceQuota has {format_step(context.resource, left)} left for {pluralize(around.replicas, 'replica')}"
    # A limit below its request is invalid, and the pod would be rejected.
    if context.limit is None and most < pair.request:
        return NoChange(f"the policy asks for a limit, and {why}", "ResourceQuota")
    return LimitStep(pair.request, most, why, "ResourceQuota")


def apply_ratio(pair: RequestLimitPair, context: GuardContext) -> LimitStep | None:
    """Keep the ratio of limit to request that the LimitRange admits: the limit gives way if it may, else the
    request.
    """
    limit = pair.limit
    if limit is None:
        return None
    most = min(context.container_range.ratio, context.pod_range.ratio)
    if limit <= pair.request * most:
        return None
    if not context.keeps_limit:
        # Rounded down to keep the ratio, but not below the request, which the API server would reject.
        admitted = max(round_down(context.resource, int(pair.request * most)), pair.request)
        limit = max(admitted, _limit_floor(pair, context))
    request = max(pair.request, ceil(limit / most))
    if request != pair.request:
        # Rounding up must not lift the request above its limit, which the API server would reject.
        request = min(round_up(context.resource, request), limit)
    return LimitStep(
        request, limit, f"the LimitRange allows a limit of at most {most:g} times the request", "LimitRange"
    )


def align_request(pair: RequestLimitPair, context: GuardContext) -> LimitStep | None:
    """Keep the request at or below its limit, and equal to it in a Guaranteed pod."""
    limit = pair.limit
    if limit is None or pair.request == limit or (pair.request < limit and not context.must_stay_guaranteed):
        return None
    # A limit that was cut by the namespace or the quota takes the request with it: one above its limit is
    # invalid.
    return LimitStep(limit, limit, "not above the limit", "limit")


def check_conflict(pair: RequestLimitPair, context: GuardContext) -> NoChange | None:
    """Return a conflict if the result violates an earlier guard: no change is better than half of one."""
    for cap in (
        requests.apply_bounds,
        requests.apply_limit_range,
        requests.apply_kept_limit,
        requests.apply_node_capacity,
        requests.apply_quota,
    ):
        broken = cap(pair.request, context)
        if broken is not None:
            return NoChange(
                f"{_format_pair(pair, context)} would break another rule: {broken.why}", broken.source
            )
    for guard in (keep_needed_limit, apply_limit_range, apply_quota, apply_ratio):
        refused = guard(pair, context)
        if refused is not None:
            return NoChange(
                f"{_format_pair(pair, context)} would break another rule: {refused.why}", refused.source
            )
    return None


def _format_pair(pair: RequestLimitPair, context: GuardContext) -> str:
    return f"a request of {format_step(context.resource, pair.request)}, limit {format_step(context.resource, pair.limit)}"


def _limit_floor(pair: RequestLimitPair, context: GuardContext) -> int:
    """Return what the limit may not be brought below: what is needed, in an amount that people can read.

    A limit that was lower is left at that, except where the policy sets limits by itself (Multiplier, Headroom): those
    rise again with the need as they fell with it.
    """
    if context.limit is None:
        return 0 if pair.floor == NO_DECREASE else round_up(context.resource, pair.floor)
    if pair.floor == NO_DECREASE:
        return context.limit
    needed = round_up(context.resource, max(pair.floor, min_limit_after_kills(context)))
    # In the other modes the author of the workload chose the limit, and evidence is no reason to raise it.
    return needed if context.rule.limit in requests.LIMIT_SETTING_MODES else min(context.limit, needed)
