"""More memory after an OOM kill, but not without end.

A container is killed at its limit, so it is the limit that has to rise, and the request only as far as the limit follows
it. Where the container had more of late, as before a decrease, it gets that back at once: to climb step by step would
cost a kill for each. Else it gets some more than it was killed with. One that is killed again with more each time leaks,
and more would only feed it. How much it must have is for `safe_minimum` to say.
"""

from __future__ import annotations

from math import ceil

from trimtab.api.optimizationpolicy import LimitMode
from trimtab.sizing.evidence import OomKills
from trimtab.sizing.guards.context import LET_LIMITS_FOLLOW_REMEDY, GuardContext, GuardStep, NoChange
from trimtab.sizing.recommendation import format_amount
from trimtab.sizing.safe_minimum import (
    OOM_KILLS_SOURCE,
    SizedResource,
    is_oom_prone,
    killed_size,
    oom_minimum,
)


def raise_after_kills(amount: int, case: GuardContext) -> GuardStep | NoChange | None:
    """Raise memory above what killed the container, unless that has been tried in vain."""
    if not killed_size(case):
        return None
    if hold := _check_leak(amount, case):
        return hold
    request, had = case.request or 1, format_amount("memory", killed_size(case))
    if not is_oom_prone(case):
        return None
    if case.limit is not None and case.rule.limit is LimitMode.KEEP:
        why = f"killed with {had}, and its limit stays: raise it by hand, or {LET_LIMITS_FOLLOW_REMEDY}"
        hold = NoChange(why, "policy updateStrategy.updateRequestsOnly, limitPolicy.memory")
        return None if amount > request else hold
    restored = restored_memory(case)
    least = max(request, _request_for_limit(max(oom_minimum(case), restored), case))
    back = f", and it had {format_amount('memory', restored)} before" if restored else ""
    return GuardStep(least, f"killed with {had}{back}", OOM_KILLS_SOURCE) if amount < least else None


def _check_leak(amount: int, case: GuardContext) -> NoChange | None:
    """Hold a container that was given more again and again and killed with it: that would only feed a leak.

    To give back what it had before its kills feeds nothing, so that is never held.
    """
    kills, prone = case.evidence.kills, is_oom_prone(case)
    raised, had = count_raises(kills), format_amount("memory", killed_size(case))
    if restored_memory(case) or not raised:
        return None
    if is_leaking(case) and (prone or amount > (case.request or 1)):
        times = sum(each.count for each in kills)
        why = f"killed {times} times, last with {had}, after {raised} raises: it looks like a leak; "
        return NoChange(why + "fix it, or set a larger memory by hand", OOM_KILLS_SOURCE)
    if prone and not _has_ceiling(case):
        why = "killed again after a raise, and nothing says how far to go: set resourceBounds.memory.max"
        return NoChange(why, OOM_KILLS_SOURCE)
    return None


def min_limit_after_kills(case: GuardContext) -> int:
    """Return the memory that a limit must have after kills: what it had before where it still lacks it; 0 without kills."""
    least = oom_minimum(case)
    return max(least, restored_memory(case)) if is_oom_prone(case) else least


def proportional_request(sized: SizedResource) -> int:
    """Return the least memory request after kills for whoever scales the limit along with it, as VPA does; 0 without kills."""
    if not killed_size(sized):
        return 0
    request, limit = sized.request or 0, sized.limit
    if not is_oom_prone(sized) or is_leaking(sized):
        return request
    need = max(oom_minimum(sized), restored_memory(sized))
    return -(-request * need // limit) if limit and request else need


def is_leaking(sized: SizedResource) -> bool:
    """Whether a container was given more after kills again and again, more than it ever had, and was killed with it."""
    return count_raises(sized.evidence.kills) >= sized.rules.safety.max_oom_raises and not restored_memory(
        sized
    )


def restored_memory(sized: SizedResource) -> int:
    """Return the earlier memory that a killed container gets back: the most of about a week; 0 where none was more.

    If that was tried and was not enough, the most of a month, or its template's.
    """
    evidence = sized.evidence
    had = evidence.earlier_memory if count_raises(evidence.kills) else evidence.recent_memory
    return had if had > max((each.memory for each in evidence.kills), default=0) else 0


def check_unhandled_oom(case: GuardContext) -> NoChange | None:
    """Why a kill is left without an answer, where the size stays as it is."""
    if not is_oom_prone(case):
        return None
    answer = raise_after_kills(case.request or 1, case)
    if isinstance(answer, NoChange):
        return answer
    had = format_amount("memory", killed_size(case))
    return NoChange(f"killed with {had}, and it may not have more", OOM_KILLS_SOURCE)


def explain_excluded_oom(case: GuardContext, hold: NoChange) -> NoChange:
    """Of a kill that is not for us to answer, who has to."""
    had = format_amount("memory", killed_size(case))
    return NoChange(f"killed with {had}, and {hold.why}: raise it by hand", hold.source)


def _request_for_limit(need: int, case: GuardContext) -> int:
    """The request by which the limit comes to this, as it follows by the policy; without one the request itself."""
    rule, request, limit = case.rule, case.request or 1, case.limit
    if not limit or case.must_stay_guaranteed:
        return need
    by_policy = request  # one that is to go is raised first
    match rule.limit:
        case LimitMode.KEEP_RATIO:
            by_policy = -(-request * need // limit)
        case LimitMode.MULTIPLIER:
            by_policy = ceil(need / rule.multiplier)
        case LimitMode.HEADROOM:
            by_policy = need - rule.headroom
    return max(by_policy, ceil(need / min(case.container_range.ratio, case.pod_range.ratio)))


def count_raises(kills: tuple[OomKills, ...]) -> int:
    """Count how often a container had clearly more than at any kill before and was killed nevertheless."""
    found, highest = 0, 0.0
    for each in sorted(kills, key=lambda kills: kills.first):
        if each.memory > highest * 1.05:
            found, highest = found + 1, float(each.memory)
    return max(found - 1, 0)


def _has_ceiling(case: GuardContext) -> bool:
    return (
        case.rule.max_request is not None
        or case.container_range.max is not None
        or bool(case.constraints.nodes)
    )
