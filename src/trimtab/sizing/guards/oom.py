"""More memory after an OOM kill, but not without end.

A container is killed at its limit, so the limit has to rise, and the request only as far as the limit follows
it. If the container recently had more, for example before a decrease, it gets that back at once: growing step
by step would cost a kill for each step. Otherwise it gets somewhat more than it was killed with. A container
that is killed again with more each time leaks, and more memory would only feed the leak. `safe_minimum` knows
how much it must have.
"""

from __future__ import annotations

from math import ceil

from trimtab.api.optimizationpolicy import LimitMode
from trimtab.api.quantity import format_step
from trimtab.sizing.evidence import (
    OOM_KILLS_SOURCE,
    OomKills,
    SizedResource,
    is_oom_prone,
    killed_size,
    oom_minimum,
)
from trimtab.sizing.guards.context import LET_LIMITS_FOLLOW_REMEDY, GuardContext, GuardStep, NoChange

MAX_OOM_RAISES = 3
"""The number of raises after OOM kills after which another kill counts as a leak."""


def raise_after_kills(amount: int, context: GuardContext) -> GuardStep | NoChange | None:
    """Raise memory above what killed the container, unless that was tried without success."""
    if not killed_size(context):
        return None
    if hold := _check_leak(amount, context):
        return hold
    request, had = context.request or 1, format_step("memory", killed_size(context))
    if not is_oom_prone(context):
        return None
    if context.limit is not None and context.keeps_limit:
        why = f"OOM killed with {had}, and the policy keeps the limit: raise it by hand, or {LET_LIMITS_FOLLOW_REMEDY}"
        hold = NoChange(why, "policy updateStrategy.updateRequestsOnly, limitPolicy.memory")
        return None if amount > request else hold
    restored = restored_memory(context)
    least = max(request, _request_for_limit(max(oom_minimum(context), restored), context))
    back = f", and it had {format_step('memory', restored)} before" if restored else ""
    return GuardStep(least, f"OOM killed with {had}{back}", OOM_KILLS_SOURCE) if amount < least else None


def _check_leak(amount: int, context: GuardContext) -> NoChange | None:
    """Keep a container that was raised and killed again and again: more memory would only feed a leak.

    Restoring what it had before its kills feeds nothing, so that is always allowed.
    """
    kills, prone = context.evidence.kills, is_oom_prone(context)
    raised, had = count_raises(kills), format_step("memory", killed_size(context))
    if restored_memory(context) or not raised:
        return None
    if is_leaking(context) and (prone or amount > (context.request or 1)):
        times = sum(each.count for each in kills)
        why = f"OOM killed {times} times, last with {had}, after {raised} raises: it looks like a leak; "
        return NoChange(why + "fix it, or set a larger memory by hand", OOM_KILLS_SOURCE)
    if prone and not _has_ceiling(context):
        why = "OOM killed again after a raise, and nothing bounds the next one: set resourceBounds.memory.max"
        return NoChange(why, OOM_KILLS_SOURCE)
    return None


def min_limit_after_kills(context: GuardContext) -> int:
    """Return the memory that a limit must have after kills: the earlier amount while it is still missing; 0
    without kills.
    """
    least = oom_minimum(context)
    return max(least, restored_memory(context)) if is_oom_prone(context) else least


def proportional_request(sized: SizedResource) -> int:
    """Return the least memory request after kills if the limit scales along with it, as in VPA; 0 without
    kills.
    """
    if not killed_size(sized):
        return 0
    request, limit = sized.request or 0, sized.limit
    if not is_oom_prone(sized) or is_leaking(sized):
        return request
    need = max(oom_minimum(sized), restored_memory(sized))
    return -(-request * need // limit) if limit and request else need


def is_leaking(sized: SizedResource) -> bool:
    """Return whether a container was raised after kills again and again, beyond what it ever had, and killed
    with it.
    """
    return count_raises(sized.evidence.kills) >= MAX_OOM_RAISES and not restored_memory(sized)


def restored_memory(sized: SizedResource) -> int:
    """Return the earlier memory that a killed container gets back: the most of about a week; 0 if none was
    more.

    If that was tried and was not enough, the most of a month, or its template's.
    """
    evidence = sized.evidence
    had = evidence.earlier_memory if count_raises(evidence.kills) else evidence.recent_memory
    return had if had > max((each.memory for each in evidence.kills), default=0) else 0


def check_unhandled_oom(context: GuardContext) -> NoChange | None:
    """Return why an OOM kill has no effect, if the size stays as it is."""
    if not is_oom_prone(context):
        return None
    answer = raise_after_kills(context.request or 1, context)
    if isinstance(answer, NoChange):
        return answer
    had = format_step("memory", killed_size(context))
    return NoChange(f"OOM killed with {had}, and bounds, quota or nodes allow no more", OOM_KILLS_SOURCE)


def explain_excluded_oom(context: GuardContext, hold: NoChange) -> NoChange:
    """Return who has to react to an OOM kill of a container that Trimtab does not size."""
    had = format_step("memory", killed_size(context))
    return NoChange(f"OOM killed with {had}, and {hold.why}: raise it by hand", hold.source)


def _request_for_limit(need: int, context: GuardContext) -> int:
    """Return the request with which the limit, as the policy sets it, reaches this need; without a limit, the
    need itself.
    """
    rule, request, limit = context.rule, context.request or 1, context.limit
    if not limit or context.must_stay_guaranteed:
        return need
    by_policy = request  # A limit that is to be removed is raised first.
    match rule.limit:
        case LimitMode.KEEP_RATIO:
            by_policy = -(-request * need // limit)
        case LimitMode.MULTIPLIER:
            by_policy = ceil(need / rule.multiplier)
        case LimitMode.HEADROOM:
            by_policy = need - rule.headroom
    # A LimitRange may cap the limit at a multiple of the request: with a smaller request the needed limit is
    # rejected.
    return max(by_policy, ceil(need / min(context.container_range.ratio, context.pod_range.ratio)))


def count_raises(kills: tuple[OomKills, ...]) -> int:
    """Count how often a container had clearly more than at any kill before and was killed nevertheless."""
    found, highest = 0, 0.0
    for each in sorted(kills, key=lambda kills: kills.first):
        # Kills at about the same size are one attempt: a killed container is often killed again before it is
        # raised.
        if each.memory > highest * 1.05:
            found, highest = found + 1, float(each.memory)
    # The first size is where it began and no raise.
    return max(found - 1, 0)


def _has_ceiling(context: GuardContext) -> bool:
    return (
        context.rule.max_request is not None
        or context.container_range.max is not None
        or bool(context.constraints.nodes)
    )
