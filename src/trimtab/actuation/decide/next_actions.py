"""What to do next for one workload: the pure heart of applying, verifying and taking back.

It is given the world as it is, the marks on the workload included, and names the deeds that bring it one step
further. It remembers nothing, so it may be asked at any time, twice, or by another process after a crash, and the
answer still fits. A change is written down before the first pod is touched; whenever marks are to be written, nothing
else is done before they are seen to be there.
"""

from __future__ import annotations

from trimtab.actuation.actions import Deed, Skip, Wait, WriteMarks
from trimtab.actuation.change_annotations import Foreign, Marks, Phase, read_marks
from trimtab.actuation.decide.advance import advance
from trimtab.actuation.decide.clock_skew import set_right
from trimtab.actuation.decide.context import Situation
from trimtab.actuation.decide.revert import revert
from trimtab.actuation.decide.start import LOOK_AGAIN, begin
from trimtab.actuation.decide.sync_pods import left_behind, sync_during, tend


def next_deeds(situation: Situation) -> list[Deed]:  # noqa: PLR0911 - one return an answer
    """The deeds of this step, in order; a Wait or a Skip among them says why there is nothing more."""
    workload = situation.workload
    marks = read_marks(dict(workload.annotations), uid=workload.uid)
    if isinstance(marks, Foreign):
        return [Skip(marks.why)]
    if situation.wish.withheld:
        left = "; the change under way is left as it is" if marks.change else ""
        return [Skip(situation.wish.withheld + left)]
    if workload.deleting:
        return []
    if (right := set_right(marks, now=situation.now)) != marks:
        return [WriteMarks(right)]
    change = marks.change
    if change is None:
        on_hold: list[Deed] = [Skip(situation.wish.on_hold)] if situation.wish.on_hold else []
        return tend(situation, marks) or on_hold or begin(situation, marks) or _unsynced(situation, marks)
    reverting = change.phase is Phase.REVERTING
    deeds = revert(situation, marks, change) if reverting else advance(situation, marks, change)
    if any(isinstance(deed, WriteMarks) for deed in deeds):
        return deeds
    return [*deeds, *sync_during(situation, marks, change)]


def _unsynced(situation: Situation, marks: Marks) -> list[Deed]:
    """Report pods that are not of the size that the workload has, though there is nothing else to do."""
    why = next(iter(left_behind(situation, marks)), "")
    return [Wait(situation.now + LOOK_AGAIN, why)] if why else []
