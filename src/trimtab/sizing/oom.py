"""More memory after a kill, but not without end.

The raise is reckoned from what the container had when it was killed, so the same kill seen twice raises once. One that
is killed again with more each time leaks, and more would only feed it.
"""

from __future__ import annotations

from math import ceil

from trimtab.sizing.case import Case, Hold, Step
from trimtab.sizing.evidence import Kill
from trimtab.sizing.recommendation import amount_text

_KERNEL = "OOM kills"


def after_kills(amount: int, case: Case) -> Step | Hold | None:
    """More than it had when it was last killed, as long as that is recent and has not been tried in vain."""
    row = in_a_row(case.evidence.kills, case.now, case.rules.caution.oom_quiet)
    if not row:
        return None
    caution, raised = case.rules.caution, raises(row)
    had = row[-1].memory
    if raised >= caution.oom_raises:
        why = f"killed {len(row)} times in a row, last with {amount_text('memory', had)}, after {raised} raises: "
        return Hold(why + "it looks like a leak, mend it or set a higher bound by hand", _KERNEL)
    if raised and not _has_ceiling(case):
        why = "killed again after a raise, and nothing says how far to go: set resourceBounds.memory.max"
        return Hold(why, _KERNEL)
    need = max(ceil(had * caution.oom_factor), had + caution.oom_least)
    if amount >= need:
        return None
    return Step(need, f"killed with {amount_text('memory', had)}", _KERNEL)


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
    return case.rule.most is not None or case.container_range.max is not None or case.around.node is not None
