"""Decide what to do next for one workload: the pure core of applying, verifying and reverting.

It gets the current state, including the annotations on the workload, and returns the actions of the next
step. It remembers nothing, so that it can be called at any time, twice, or by another process after a crash.
A change is recorded before the first pod is touched, and no other action is taken before annotations that are
to be written are there.
"""

from __future__ import annotations

from trimtab.actuation.actions import ChangeAction, Skip, Wait, WriteAnnotations
from trimtab.actuation.change_annotations import (
    ChangeAnnotations,
    Phase,
    UnreadableAnnotations,
    decode_change_annotations,
)
from trimtab.actuation.decide.advance import advance
from trimtab.actuation.decide.clock_skew import clamp_future_times
from trimtab.actuation.decide.context import ChangeContext
from trimtab.actuation.decide.revert import revert
from trimtab.actuation.decide.start import RECHECK_INTERVAL, start_change
from trimtab.actuation.decide.sync_pods import sync_during_change, sync_pods, unsynced_pods


def next_actions(situation: ChangeContext) -> list[ChangeAction]:  # noqa: PLR0911 - one return an answer
    """Return the actions of this step in order; a Wait or Skip among them gives the reason why there is
    nothing more.
    """
    workload = situation.workload
    marks = decode_change_annotations(dict(workload.annotations), uid=workload.uid)
    if isinstance(marks, UnreadableAnnotations):
        return [Skip(marks.reason)]
    if situation.desired.blocked_reason:
        left = "; the change under way is left as it is" if marks.change else ""
        return [Skip(situation.desired.blocked_reason + left)]
    if workload.deleting:
        return []
    if (right := clamp_future_times(marks, now=situation.now)) != marks:
        return [WriteAnnotations(right)]
    change = marks.change
    if change is None:
        on_hold: list[ChangeAction] = (
            [Skip(situation.desired.hold_reason)] if situation.desired.hold_reason else []
        )
        return (
            sync_pods(situation, marks)
            or on_hold
            or start_change(situation, marks)
            or _report_unsynced(situation, marks)
        )
    reverting = change.phase is Phase.REVERTING
    deeds = revert(situation, marks, change) if reverting else advance(situation, marks, change)
    if any(isinstance(deed, WriteAnnotations) for deed in deeds):
        return deeds
    return [*deeds, *sync_during_change(situation, marks, change)]


def _report_unsynced(situation: ChangeContext, marks: ChangeAnnotations) -> list[ChangeAction]:
    """Report pods that do not have the size of the workload although there is nothing else to do."""
    why = next(iter(unsynced_pods(situation, marks)), "")
    return [Wait(situation.now + RECHECK_INTERVAL, why)] if why else []
