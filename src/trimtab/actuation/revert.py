"""Taking a change back: exactly what was, on every pod that has what we gave it, and then peace for a while.

It waits for no window and for no evidence; only where pods have to be evicted for it, one goes after the other. Pods
that never had the new size are left alone, and so is a template that somebody else has changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.actuation.deeds import Deed, Emit, EvictPod, PatchTemplate, ResizePod, Urgency, Wait, WriteMarks
from trimtab.actuation.marks import Change, Marks, Reverted, Way
from trimtab.actuation.obstacles import passed_over
from trimtab.actuation.progress import POLL
from trimtab.actuation.situation import Situation
from trimtab.actuation.sizes import Sizes, has_size, is_as_made, is_settled, joined
from trimtab.kube.pods import Pod

FIRST_REST = 3600
LONGEST_REST = 7 * 24 * 3600
BLAMELESS_REST = 300
"""For a change that was overtaken by somebody else's: what they do should be over by then."""


def revert(  # noqa: PLR0911 - one return a step
    situation: Situation, marks: Marks, change: Change
) -> list[Deed]:
    """One step back."""
    ours = joined(change.template, change.after)
    if change.patches_template and situation.template == ours != change.template:
        if refusal := situation.refusal(situation.workload.uid, change.template):
            return [Wait(situation.now + POLL, f"its template cannot be put back: {refusal}")]
        return [PatchTemplate(change.template, situation.strategy.take_ownership)]
    touched = [pod for pod in situation.live if _is_changed(situation, change, pod)]
    if change.way is Way.ROLLOUT and (halting := passed_over(situation, touched)):
        return [EvictPod(halting[0], Urgency.BACK)]
    if change.way is Way.ROLLOUT and (situation.workload.rolling or not situation.workload.observed):
        return [Wait(situation.now + POLL, "its pods are being replaced by those of before")]
    if touched and change.way is Way.RECREATE:
        return [_replace_one(situation, change, touched)]
    if deeds := [deed for pod in touched if (deed := _undo(situation, change, pod))]:
        return deeds
    if touched:
        words = situation.refusal(touched[0].uid, _before(touched[0], change))
        return [Wait(situation.now + POLL, f"{touched[0].name} cannot be put back: {words}")]
    back = [pod for pod in situation.live if has_size(pod, change.before_of(pod))]
    if waiting := [pod for pod in back if not is_settled(pod, change.before_of(pod))]:
        return [Wait(situation.now + POLL, f"{waiting[0].name} has yet to be as it was")]
    return [_finish(situation, marks, change), Emit("Warning", "Reverted", change.reason)]


def rest(times: int) -> int:
    """Seconds of peace after so many changes in a row were taken back."""
    return int(min(LONGEST_REST, FIRST_REST * 2 ** min(times - 1, 16)))


def _is_changed(situation: Situation, change: Change, pod: Pod) -> bool:
    """Whether the pod has the size that the change gave it, and not because its template now says so."""
    if change.way is Way.TEMPLATE or has_size(pod, change.before_of(pod)):
        return False
    by_template = situation.template != change.template and is_as_made(pod, situation.template)
    return has_size(pod, change.after) and not by_template


def _replace_one(situation: Situation, change: Change, touched: Sequence[Pod]) -> Deed:
    """Have one made anew: who is not ready serves nobody, and of the others only while few are missing.

    Pods of before the change are not waited for: what ails them is not ours, and may be so for ever.
    """
    first = min(touched, key=lambda pod: pod.ready)
    missing = situation.unwell - sum(
        not pod.ready and pod.created <= change.started for pod in situation.live
    )
    if first.ready and missing > 0:
        return Wait(situation.now + POLL, f"{missing} of its pods are missing or not ready")
    return EvictPod(first, Urgency.BACK)


def _undo(situation: Situation, change: Change, pod: Pod) -> Deed | None:
    before = _before(pod, change)
    return None if situation.refusal(pod.uid, before) else ResizePod(pod, before, Urgency.BACK)


def _before(pod: Pod, change: Change) -> Sizes:
    before = change.before_of(pod)
    return {each.name: before[each.name] for each in pod.containers if each.name in before}


def _finish(situation: Situation, marks: Marks, change: Change) -> WriteMarks:
    last, now = marks.reverted, situation.now
    blamed = not (change.blameless or change.relief)
    times = (last.times if last else 0) + blamed
    until, relief_until = now + (rest(times) if blamed else BLAMELESS_REST), 0
    if change.relief:
        relief_until = now + (BLAMELESS_REST if change.blameless else _relief_rest(last))
        # What was reverted before rests as long as it was to.
        until = max(relief_until, last.until if last else 0)
    reverted = Reverted(
        id=change.id, at=now, why=change.reason, times=times, until=until, relief_until=relief_until
    )
    return WriteMarks(Marks(applied=marks.applied, reverted=reverted))


def _relief_rest(last: Reverted | None) -> int:
    """Seconds until more memory is tried again that could not be given: twice as long as the last time, at most an hour."""
    rested = last.relief_until - last.at if last and last.relief_until else 0
    return min(FIRST_REST, max(BLAMELESS_REST, 2 * rested))
