"""A change under way: touch the pods of its phase, wait until they have settled, watch them, go on or turn back.

Worse is acted on at once. Good is believed only after the observation time, and only where nothing is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trimtab.actuation.actions import (
    Deed,
    Emit,
    EvictPod,
    PatchTemplate,
    ResizePod,
    Urgency,
    Wait,
    WriteMarks,
)
from trimtab.actuation.change_annotations import Applied, Change, Marks, Phase, Way
from trimtab.actuation.decide.conflicts import (
    REPLACES,
    falls,
    gives_way,
    is_open,
    overtaken,
    passed_over,
    refused,
    refused_template,
    rolled_out,
    size_of,
    verdict,
)
from trimtab.actuation.decide.context import Situation
from trimtab.actuation.decide.health import ends_ahead
from trimtab.actuation.decide.maintenance_windows import next_opening
from trimtab.actuation.decide.method import Plan, by_replacing, resizable
from trimtab.actuation.decide.stalls import (
    falling,
    missing,
    moved_in_vain,
    outgrown,
    renews_once_more,
    stuck,
    without_room,
)
from trimtab.actuation.decide.start import DAY, LOOK_AGAIN, MOST_CANARIES, canaries
from trimtab.actuation.resources import grows, has_size, is_settled, joined, only, said
from trimtab.actuation.started_limits import memory_limits_at_start
from trimtab.kube.kinds.pods import Pod

POLL = 15
"""Seconds until pods are looked at again, should no event tell of them before."""


def advance(  # noqa: PLR0911 - one return a step
    situation: Situation, marks: Marks, change: Change
) -> list[Deed]:
    """One step further with a change that is not being taken back."""
    if turn := _turn(situation, marks, change):
        return turn
    pods = _pods_of_phase(situation, change)
    if not pods and change.phase is Phase.CANARY:
        return [_choose_again(situation, marks, change)]
    done_without = _goes_on_without(situation, change, pods)
    if not done_without and (touches := _touches(situation, marks, change, pods)):
        closed = _closed(situation, change) if change.phase is Phase.PROMOTING else None
        return [*_at_any_time(change, touches), closed] if closed else touches
    if moving := outgrown(situation, change):
        return _moved(situation, marks, change, moving)
    if waits := _until_settled(situation, marks, change, pods):
        return waits
    if change.phase is Phase.PROMOTING:
        return [_settle(situation, marks, change, phase=Phase.VERIFYING)]
    if not change.settled:
        return [_settle(situation, marks, change)]
    return _observe(situation, marks, change)


def _turn(  # noqa: PLR0911 - one return a turn
    situation: Situation, marks: Marks, change: Change
) -> list[Deed]:
    """Where it cannot go on as it does: back, or another way."""
    if why := overtaken(situation, change):
        return _turn_back(situation, marks, change, why=why, blameless=True)
    if change.phase is Phase.CANARY and (why := situation.wish.on_hold):
        # Held at its size, which most pods still have. One that is meant for all pods comes to its end.
        return _turn_back(situation, marks, change, why=why, blameless=True)
    if change.way is Way.IN_PLACE and refused_template(situation, change):
        # It was to follow only because that restarts nothing; pods get their size without it, also those to come.
        return [note(marks, change, patches_template=False)]
    if gives_way(situation, change):
        why = "more memory after an OOM kill goes first"
        return _turn_back(situation, marks, change, why=why, blameless=True)
    found = refused(situation, change) or verdict(situation, change).worse
    if why := found or moved_in_vain(situation, change):
        return _turn_back(situation, marks, change, why=why)
    if outgrown(situation, change):
        return []  # they are moved, once all others are resized
    if others := _by_others(situation, marks, change):
        return others
    if (why := stuck(situation, change)) and not _helps_others(situation, change):
        return _turn_back(situation, marks, change, why=why)
    return []


def _pods_of_phase(situation: Situation, change: Change) -> list[Pod]:
    if _is_replaced(change):
        return list(situation.live)
    pods = resizable(situation, situation.live, change.after)
    return [pod for pod in pods if change.phase is not Phase.CANARY or pod.name in change.canaries]


def _choose_again(situation: Situation, marks: Marks, change: Change) -> Deed:
    """All canaries are gone: scaled in, or replaced. Others take their place."""
    if not situation.live:
        return Wait(situation.now + POLL, "it has no pods at the moment")
    if change.moved and (away := missing(situation)):
        return Wait(situation.now + POLL, f"{away} of its pods are missing")
    if change.moved and (came := [pod.name for pod in situation.live if pod.created > change.started]):
        # Before another is evicted, it is seen whether that has helped.
        return note(marks, change, canaries=tuple(came[:MOST_CANARIES]), settled=0)
    chosen = canaries(situation, resizable(situation, situation.live, change.after))
    phase = Phase.CANARY if chosen else Phase.PROMOTING
    return _next_phase(situation, marks, change, canaries=chosen, phase=phase)


def _touches(situation: Situation, marks: Marks, change: Change, pods: Sequence[Pod]) -> list[Deed]:
    """What is still to be given the new size in this phase."""
    if change.patches_template and change.phase is not Phase.CANARY:
        wanted = joined(situation.template, change.after)
        if wanted != situation.template:
            return [PatchTemplate(wanted, situation.strategy.take_ownership)]
        if change.way is Way.RECREATE and not situation.workload.observed:
            return [Wait(situation.now + POLL, "its controller has yet to see the changed template")]
        if renews_once_more(situation, change):
            return [note(marks, change, renews=situation.now)]
    urgency = Urgency.UP if grows(change.before, change.after) else Urgency.DOWN
    if change.way is Way.IN_PLACE or change.phase is Phase.CANARY:
        behind = [pod for pod in pods if not has_size(pod, change.after)]
        return [ResizePod(pod, size_of(pod, change), urgency) for pod in behind if not falls(pod)]
    # Only the pods of before: to evict one that has just come, and is of another size, would never end.
    old = [pod for pod in pods if not change.came_by_it(pod) and not is_settled(pod, change.after)]
    if change.way is Way.RECREATE:
        old = [pod for pod in old if falls(pod) or not situation.unwell]
    else:
        old = passed_over(situation, old)
    return [EvictPod(pod, urgency) for pod in old[:1]]


def _at_any_time(change: Change, touches: Sequence[Deed]) -> list[Deed]:
    """Return the resizes that wait for no window, as pod sync never does.

    They are of pods that came since: one in the place of a pod that we evicted may find a node by its new size only, and
    one of the template's size would have less than all others until a window opens.
    """

    def came_since(pod: Pod) -> bool:
        return pod.created > change.started and (change.moved or not has_size(pod, change.before))

    return [deed for deed in touches if isinstance(deed, ResizePod) and came_since(deed.pod)]


def _until_settled(situation: Situation, marks: Marks, change: Change, pods: Sequence[Pod]) -> list[Deed]:
    """What is done while some of the pods do not have the new size in effect; nothing when all have."""
    waiting = _unsettled(situation, change, pods)
    if not waiting:
        return []
    yet = f"it has yet to take effect on {waiting}"
    if change.phase is not Phase.VERIFYING:
        return _until_caught(situation, marks, change, pods, yet=yet)
    if not _is_overdue(situation, change, pods):
        return [Wait(situation.now + POLL, yet)]
    # A pod that came later is resized later, once it can be; and it is no reason to take from others what keeps them alive.
    if change.way is Way.IN_PLACE or change.relief:
        return []
    return _turn_back(situation, marks, change, why=f"{yet}, for too long")


def _until_caught(
    situation: Situation, marks: Marks, change: Change, pods: Sequence[Pod], *, yet: str
) -> list[Deed]:
    """What is done while pods are waited for that may fall, again and again, before they can be resized.

    What else pods wait for comes to its end by itself, or is `stuck`.
    """
    if _goes_on_without(situation, change, pods):
        return []
    lacking = [pod for pod in pods if not is_settled(pod, change.after)]
    fallen = [pod for pod in lacking if falls(pod) and not has_size(pod, change.after)]
    if _is_replaced(change) or not fallen or fallen != lacking:
        return [Wait(situation.now + POLL, yet)]
    yet += ", which falls before it can be resized"
    if situation.now < _given_up(situation, change.since):
        return [Wait(situation.now + POLL, yet)]
    # The others go on without it, and it is resized once it runs.
    return [] if len(fallen) < len(pods) else _turn_back(situation, marks, change, why=yet, blameless=True)


def _goes_on_without(situation: Situation, change: Change, pods: Sequence[Pod]) -> bool:
    """Whether pods that do not have the new size, or cannot be given it, are left to pod sync: they were tried for long enough."""
    if change.phase is Phase.VERIFYING:
        return change.way is Way.IN_PLACE and _is_overdue(situation, change, pods)
    return bool(stuck(situation, change)) and _helps_others(situation, change)


def _is_overdue(situation: Situation, change: Change, pods: Sequence[Pod]) -> bool:
    """Whether pods that came after the others were waited for as long as they may be."""
    # Where pods come and go all the time, one has always just come.
    at_the_latest = max(change.settled, situation.sightings.since) + DAY
    return situation.now >= _given_up(situation, min(_unwell_since(change, pods), at_the_latest))


def _helps_others(situation: Situation, change: Change) -> bool:
    """Whether some pods have got the memory that they were killed for lack of: others without room do not cost them that."""
    is_written = situation.template == joined(situation.template, change.after)
    goes_on = change.relief and (is_written or not _is_replaced(change))
    return goes_on and any(pod.ready and pod.node and is_settled(pod, change.after) for pod in situation.live)


def _by_others(situation: Situation, marks: Marks, change: Change) -> list[Deed]:
    """Where those pods that run will not get the size, and new ones may: on another node, or from their very start."""
    full = without_room(situation, change)
    if full and (situation.workload.kind == "DaemonSet" or situation.workload.update == "Recreate"):
        return []  # they would come to the same node; or all would go at once, and there may be no room for any to come
    why = next(iter(full), "") or falling(situation, change)
    found = by_replacing(situation, why) if why else None
    # Whoever injects the others gives them their size in pods that are made anew.
    after = only(change.after, situation.template)
    if not isinstance(found, Plan) or after == only(change.before, situation.template):
        return []
    noted = _next_phase(
        situation,
        marks,
        change,
        way=found.way,
        after=after,
        patches_template=True,
        phase=Phase.PROMOTING,
    )
    return [noted, Emit("Normal", "Replacing", f"its pods are replaced: {why}")]


def _moved(situation: Situation, marks: Marks, change: Change, moving: Mapping[str, Pod]) -> list[Deed]:
    """Evict one of them, and leave the others in peace."""
    if not change.moved:
        return [note(marks, change, moved=True)]
    if closed := _closed(situation, change):
        return [closed]
    if situation.unwell:
        return [Wait(situation.now + POLL, f"{situation.unwell} of its pods are missing or not ready")]
    why, pod = next(iter(moving.items()))
    return [EvictPod(pod, Urgency.UP), Emit("Normal", "Replacing", f"{pod.name} is evicted: {why}")]


def _unsettled(situation: Situation, change: Change, pods: Sequence[Pod]) -> str:
    """Which pods do not have the new size in effect; empty when all have."""
    if change.way is Way.TEMPLATE:
        return ""
    if _is_replaced(change) and not rolled_out(situation):
        return "the replaced pods"
    if change.moved and (away := missing(situation)):
        return f"{away} of its pods, which are missing"
    names = [pod.name for pod in pods if not is_settled(pod, change.after) or (change.moved and not pod.node)]
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else "".join(names)


def _is_replaced(change: Change) -> bool:
    """Whether pods get the size by being made anew; canaries of such a change are resized."""
    return change.way in REPLACES and change.phase is not Phase.CANARY


def _observe(situation: Situation, marks: Marks, change: Change) -> list[Deed]:
    """All pods of the phase have settled: watch them for a time, then go on."""
    now, canary = situation.now, situation.strategy.canary
    watched_until = change.settled + int(canary.observation.seconds)
    if now < watched_until:
        return [Wait(min(watched_until, now + LOOK_AGAIN), "watching how the pods fare")]
    if unknown := verdict(situation, change).unknown or _unseen(situation, change):
        if now < (given_up := _given_up(situation, change.settled)):
            return [Wait(min(given_up, now + LOOK_AGAIN), unknown)]
        return _turn_back(situation, marks, change, why=f"{unknown}, and was so for too long")
    if change.phase is Phase.CANARY:
        noted = _next_phase(situation, marks, change, phase=Phase.PROMOTING)
        return [_closed(situation, change) or noted]
    template = joined(change.template, change.after) if change.patches_template else change.template
    applied = Applied(
        id=change.id,
        at=now,
        sizes=change.after,
        template=template,
        before=change.before,
        until=change.settled,
        restarted=restarted_at(marks, change),
        started=limits_at_start(situation, marks),
    )
    return [WriteMarks(Marks(applied=applied)), Emit("Normal", "Resized", f"to {said(change.after)}")]


def restarted_at(marks: Marks, change: Change) -> int:
    """Return when a change last restarted pods, this one included."""
    if change.way in REPLACES or change.restarts:
        return change.started
    return marks.applied.restarted if marks.applied else 0


def limits_at_start(situation: Situation, marks: Marks) -> dict[str, int]:
    """Return the memory limits that the processes started with, of containers whose heap may be a share of it."""
    limits = memory_limits_at_start(situation.workload, situation.live, marks).largest
    return {
        hint.container: limits[hint.container]
        for hint in situation.workload.heaps
        if hint.container in limits
    }


def _given_up(situation: Situation, since: int) -> int:
    """When a change whose pods have settled is no longer waited for, of which something is amiss since then."""
    canary = situation.strategy.canary
    since = max(since, situation.sightings.since)
    return since + int(canary.observation.seconds) + int(canary.patience.seconds)


def _unwell_since(change: Change, pods: Sequence[Pod]) -> int:
    """Since when a pod that came after the others can have been without its size, or not ready."""
    came = [pod.created for pod in pods if not (pod.ready and is_settled(pod, change.after))]
    return max(change.settled, min(came, default=0))


def _unseen(situation: Situation, change: Change) -> str:
    """Whether no pod has lived through the observation: those that were to be watched were replaced."""
    watched_since = situation.now - int(situation.strategy.canary.observation.seconds)
    pods = _pods_of_phase(situation, change)
    if change.way is Way.TEMPLATE or any(pod.created <= watched_since for pod in pods):
        return ""
    return "no pod has been there long enough to be watched"


def _closed(situation: Situation, change: Change) -> Wait | None:
    """A window that closed meanwhile stops a change where it is."""
    if is_open(situation, change):
        return None
    opening = next_opening(situation.strategy.windows, now=situation.now)
    return Wait(opening or situation.now + LOOK_AGAIN, "no maintenance window is open")


def note(marks: Marks, change: Change, **changes: object) -> WriteMarks:
    """Write down that this is otherwise in the change."""
    return WriteMarks(msgspec.structs.replace(marks, change=msgspec.structs.replace(change, **changes)))


def _next_phase(situation: Situation, marks: Marks, change: Change, **changes: object) -> WriteMarks:
    """Note that a phase begins now, and which ends of containers were known by then."""
    now = situation.now
    return note(marks, change, since=now, settled=0, ends=ends_ahead(situation.live, now=now), **changes)


def _settle(situation: Situation, marks: Marks, change: Change, **changes: object) -> WriteMarks:
    """Note that all pods of the phase have their size."""
    now = situation.now
    # Of a change that itself restarts containers, restarts count from here on.
    ends = ends_ahead(situation.live, now=now) if change.restarts else change.ends
    return note(marks, change, settled=now, ends=ends, **changes)


def _turn_back(
    situation: Situation, marks: Marks, change: Change, *, why: str, blameless: bool = False
) -> list[Deed]:
    noted = note(
        marks,
        change,
        phase=Phase.REVERTING,
        since=situation.now,
        settled=0,
        reason=why[:1024],
        blameless=blameless,
    )
    return [noted, Emit("Warning", "Reverting", why)]
