"""More memory after a kill, but not without end.

A container is killed at its limit, so it is the limit that has to rise, and the request only as far as the limit follows
it. The raise is reckoned from what the container had when it was killed, so the same kill seen twice raises once. One
that is killed again with more each time leaks, and more would only feed it.
"""

from __future__ import annotations

from math import ceil

from trimtab.api.optimizationpolicy import LimitMode
from trimtab.sizing.case import Case, Hold, Step
from trimtab.sizing.evidence import Kill
from trimtab.sizing.recommendation import amount_text

_KERNEL = "OOM kills"


def after_kills(amount: int, case: Case) -> Step | Hold | None:
    """More than it had when it was last killed, as long as that is recent and has not been tried in vain."""
    row = _row(case)
    if not row:
        return None
    caution, raised = case.rules.caution, raises(row)
    had = amount_text("memory", row[-1].memory)
    if raised >= caution.oom_raises:
        why = f"killed {len(row)} times in a row, last with {had}, after {raised} raises: "
        return Hold(why + "it looks like a leak, mend it or set a higher bound by hand", _KERNEL)
    if raised and not _has_ceiling(case):
        why = "killed again after a raise, and nothing says how far to go: set resourceBounds.memory.max"
        return Hold(why, _KERNEL)
    request = case.request or 1
    if not lacks(case):
        least = request  # it has what it needs, and keeps it
    elif case.limit is not None and case.rule.limit is LimitMode.KEEP:
        if amount > request:
            return None
        why = f"killed with {had}, and its limit stays: raise it by hand, or let limits follow"
        return Hold(why, "policy updateStrategy.updateRequestsOnly, limitPolicy.memory")
    else:
        least = max(request, _request_for(least_limit(case), case))
    return Step(least, f"killed with {had}", _KERNEL) if amount < least else None


def least_limit(case: Case) -> int:
    """The memory with which it would not have been killed, as far as anybody knows; 0 where it was not."""
    row, caution = _row(case), case.rules.caution
    if not row or case.resource != "memory":
        return 0
    had = row[-1].memory
    return max(ceil(had * caution.oom_factor), had + caution.oom_least)


def lacks(case: Case) -> bool:
    """Whether it still has so little that it was killed."""
    row = _row(case)
    if not row:
        return False
    is_gone = case.limit is None and case.rule.limit is LimitMode.REMOVE
    if is_gone and row[-1].memory > (case.request or 0):
        return False  # it was the limit that killed it
    return (case.limit or case.request or 0) < least_limit(case)


def in_vain(case: Case) -> Hold | None:
    """Why a kill is left without an answer, where the size stays as it is."""
    if not lacks(case):
        return None
    answer = after_kills(case.request or 1, case)
    had = amount_text("memory", case.evidence.kills[-1].memory)
    return (
        answer if isinstance(answer, Hold) else Hold(f"killed with {had}, and it may not have more", _KERNEL)
    )


def unanswered(case: Case, hold: Hold) -> Hold:
    """Of a kill that is not for us to answer, who has to."""
    had = amount_text("memory", case.evidence.kills[-1].memory)
    return Hold(f"killed with {had}, and {hold.why}: raise it by hand", hold.source)


def _row(case: Case) -> tuple[Kill, ...]:
    return in_a_row(case.evidence.kills, case.now, case.rules.caution.oom_quiet)


def _request_for(need: int, case: Case) -> int:
    """The request by which the limit comes to this, as it follows by the policy; without one the request itself."""
    rule, request, limit = case.rule, case.request or 1, case.limit
    if not limit or case.stays_guaranteed:
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


def in_a_row(kills: tuple[Kill, ...], now: float, quiet: float) -> tuple[Kill, ...]:
    """The kills up to now without a quiet time between them, the oldest first."""
    later, start = now, len(kills)
    for kill in reversed(kills):
        if later - kill.at > quiet:
            break
        later = kill.at
        start -= 1
    return kills[start:]


def raises(row: tuple[Kill, ...]) -> int:
    """How often it had clearly more than at any kill before and was killed nevertheless."""
    found, highest = 0, row[0].memory
    for kill in row[1:]:
        if kill.memory > highest * 1.05:
            found, highest = found + 1, kill.memory
    return found


def _has_ceiling(case: Case) -> bool:
    return case.rule.most is not None or case.container_range.max is not None or bool(case.around.nodes)
