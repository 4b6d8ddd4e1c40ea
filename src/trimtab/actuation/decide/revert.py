"""Reverting a change: what was, on every pod that has what the change gave it, and then peace for a while.

It waits for no window and for no evidence; only where pods have to be evicted for it, one goes after the other. Pods
that never had the new size are left alone, and so is a template that somebody else has changed meanwhile.

Every wait of it ends. What a node cannot give back is had by evicting the pod, where the policy lets pods be evicted and its
template asks for enough. What cannot be had in time is given up: pods then keep what they have of it, an Event says which
and why, and the next change may begin. Memory is lowered no further than is safe, as on the way there.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from trimtab.actuation.change_annotations import Applied, Change, Marks, Reverted, Way
from trimtab.actuation.decide.advance import POLL, limits_at_start, note, restarted_at
from trimtab.actuation.decide.conflicts import REPLACES, falls, passed_over
from trimtab.actuation.decide.context import Situation
from trimtab.actuation.decide.stalls import (
    FALLING_FOR,
    IN_PROGRESS_FOR,
    LONGEST,
    UNPLACED_FOR,
    missing,
    no_room,
    runtime_error,
)
from trimtab.actuation.resources import (
    Sizes,
    adds_memory,
    has_size,
    is_as_made,
    is_between,
    is_settled,
    joined,
    keep_memory_limit,
    needs_room,
    only,
    safe_memory,
    said,
    sizes_of,
    without_more_room,
)
from trimtab.kube.kinds.pods import Pod, Resources

FIRST_REST = 3600
LONGEST_REST = 7 * 24 * 3600
BLAMELESS_REST = 300
"""For a change that was overtaken by somebody else's: what they do should be over by then."""
STANDS_STILL = 60
"""Seconds after which more memory for pods that are killed for lack of it goes before a revert that still waits."""
LAST_TRIES = 300
"""Seconds for which pods are brought to what can be had of a revert that was given up."""
MOST_WORDS = 2048
"""Letters of why, and what is not as before."""


def revert(situation: Situation, marks: Marks, change: Change) -> list[Deed]:
    """One step back."""
    if change.gave_up:
        return _resize_to_what_fits(situation, change) or _finish(situation, marks, change)
    if why := _must_give_up(situation, change):
        return [note(marks, change, gave_up=situation.now, gave_up_why=why)]
    return (
        _restore_template(situation, change)
        or _replace(situation, change)
        or _resize_back(situation, change)
        or _evict_stuck(situation, marks, change)
        or _wait_for_pods(situation, change)
        or _finish(situation, marks, change)
    )


def rest(times: int) -> int:
    """Seconds of peace after so many changes in a row were taken back."""
    return int(min(LONGEST_REST, FIRST_REST * 2 ** min(times - 1, 16)))


# Which pods, and to which size


def _touched(situation: Situation, change: Change) -> list[Pod]:
    """The pods that have the size of the change, and are to have another: all where they are replaced."""
    changed = [pod for pod in situation.live if _is_changed(situation, change, pod)]
    if change.way in REPLACES:
        return changed
    return [pod for pod in changed if not has_size(pod, _goal(situation, change, pod))]


def _is_changed(situation: Situation, change: Change, pod: Pod) -> bool:
    """Whether the pod has the size that the change gave it, and not because its template now says so."""
    if change.way is Way.TEMPLATE or has_size(pod, change.before_of(pod)):
        return False
    by_template = situation.template != change.template and is_as_made(pod, situation.template)
    return has_size(pod, change.after) and not by_template


def _asked(situation: Situation, change: Change) -> list[Pod]:
    """The pods that have what they had, or some of it, in their spec: they were asked to go back, or never changed."""
    if change.way is Way.TEMPLATE:
        return []
    return [
        pod
        for pod in situation.live
        if not has_size(pod, change.after)
        and is_between(sizes_of(pod.containers), change.before_of(pod), change.after)
    ]


def _waiting(situation: Situation, change: Change) -> list[Pod]:
    """Those that were asked to go back and have it not in effect yet; others that wait do so for longer than this."""
    seen = situation.sightings.unsettled
    return [
        pod
        for pod in _asked(situation, change)
        if not is_settled(pod, sizes_of(pod.containers)) and seen.get(pod.uid, situation.now) >= change.since
    ]


def _goal(situation: Situation, change: Change, pod: Pod) -> dict[str, Resources]:
    """The size that a pod of the change's size goes back to. Of memory that never came into effect nothing is in use."""
    if pod.node and is_settled(pod, change.after):
        return _safe_goal(situation, change, pod)
    return _before(change, pod)


def _safe_goal(situation: Situation, change: Change, pod: Pod) -> dict[str, Resources]:
    """What a pod had, with memory no lower than is safe, and no lower than the cluster can make it."""
    before, goal = _before(change, pod), {}
    for each in pod.containers:
        if each.name in before:
            has, need = change.after[each.name], situation.wish.need.get(each.name)
            wanted = safe_memory(has, before[each.name], need=need)
            stays = situation.wish.memory_limits_stay and not each.restart_on_memory_resize
            goal[each.name] = keep_memory_limit(has, wanted) if stays else wanted
    return goal


def _before(change: Change, pod: Pod) -> dict[str, Resources]:
    return only(change.before_of(pod), sizes_of(pod.containers))


def _what_fits(change: Change, wanted: Sizes) -> dict[str, Resources]:
    """What can be had of a size on a node without room, and of a server that lowers no memory limit."""
    return {name: without_more_room(change.after[name], size) for name, size in wanted.items()}


def _resizes(situation: Situation) -> bool:
    return situation.wish.resizes_in_place and situation.strategy.allow_in_place_resize


# What is done, and waited for


def _restore_template(situation: Situation, change: Change) -> list[Deed]:
    if not _has_our_template(situation, change):
        return []
    if situation.refusal(situation.workload.uid, change.template):
        return []  # it stays as it is, and so do pods that come from it
    return [PatchTemplate(change.template, situation.strategy.take_ownership)]


def _has_our_template(situation: Situation, change: Change) -> bool:
    ours = joined(change.template, change.after)
    return change.patches_template and situation.template == ours != change.template


def _replace(situation: Situation, change: Change) -> list[Deed]:
    """Have pods replaced that came by the change, or wait until their controller has done so."""
    touched = _touched(situation, change)
    if change.way is Way.ROLLOUT and (halting := passed_over(situation, touched)):
        return [EvictPod(halting[0], Urgency.BACK)]
    # A controller that is paused does nothing: pods are resized if they can be, and replaced when it goes on.
    if _is_rolled_back(situation, change) and not situation.workload.paused:
        return [Wait(situation.now + POLL, "its pods are being replaced by those of before")]
    if touched and change.way is Way.RECREATE:
        return [_replace_one(situation, change, touched)]
    return []


def _is_rolled_back(situation: Situation, change: Change) -> bool:
    workload = situation.workload
    return change.way is Way.ROLLOUT and (workload.rolling or not workload.observed)


def _replace_one(situation: Situation, change: Change, touched: Sequence[Pod]) -> Deed:
    """Have one made anew: who is not ready serves nobody, and of the others only while few are missing.

    Pods of before the change are not waited for: what ails them is not ours, and may be so for ever.
    """
    first = min(touched, key=lambda pod: pod.ready)
    lacking = situation.unwell - sum(
        not pod.ready and pod.created <= change.started for pod in situation.live
    )
    if first.ready and lacking > 0:
        return Wait(situation.now + POLL, f"{lacking} of its pods are missing or not ready")
    return EvictPod(first, Urgency.BACK)


def _resize_back(situation: Situation, change: Change) -> list[Deed]:
    """Resize pods back to what they had, or to what the server does not refuse of that."""
    deeds: list[Deed] = []
    for pod in _touched(situation, change):
        goal = _goal(situation, change, pod)
        sizes = [
            size
            for size in (goal, _what_fits(change, goal))
            if not has_size(pod, size) and not situation.refusal(pod.uid, size)
        ]
        # A resize of a pod that crashes would not reach its cgroup.
        if sizes and _resizes(situation) and not falls(pod):
            deeds.append(ResizePod(pod, sizes[0], Urgency.BACK))
    return deeds


def _evict_stuck(situation: Situation, marks: Marks, change: Change) -> list[Deed]:
    """Evict one pod that its node has no room for, or that crashes before it can be resized."""
    stuck = no_room(situation, _waiting(situation, change))
    if situation.now - change.since >= FALLING_FOR:
        fallen = [pod for pod in _touched(situation, change) if falls(pod)]
        stuck |= {f"{pod.name} crashes before it can be resized": pod for pod in fallen}
    found = {why: pod for why, pod in stuck.items() if _may_evict(situation, change, pod)}
    if not found:
        return []
    if not change.moved:
        return [note(marks, change, moved=True)]
    why, pod = next(iter(found.items()))
    if situation.unwell and pod.ready:
        return [Wait(situation.now + POLL, f"{situation.unwell} of its pods are missing or not ready")]
    return [EvictPod(pod, Urgency.BACK), Emit("Normal", "Replacing", f"{pod.name} is evicted: {why}")]


def _may_evict(situation: Situation, change: Change, pod: Pod) -> bool:
    """Whether a pod may be evicted, once, and comes back large enough: it comes of its template's size.

    A Job's would lose what it has done, and a DaemonSet's would come to the same node.
    """
    workload, made = situation.workload, change.before | situation.template
    return (
        situation.strategy.allow_recreate
        and workload.kind != "DaemonSet"
        and workload.runs_on
        and pod.created < change.since
        and not needs_room(made, change.before_of(pod))
    )


def _wait_for_pods(situation: Situation, change: Change) -> list[Deed]:
    again = situation.now + POLL
    fallen = [pod for pod in _touched(situation, change) if falls(pod)]
    if fallen and _resizes(situation):
        return [Wait(again, f"{fallen[0].name} crashes before it can be resized")]
    if change.moved and (away := missing(situation)):
        return [Wait(again, f"{away} of its pods are missing")]
    if pods := _waiting(situation, change) or _unplaced(situation, change):
        return [Wait(again, f"{pods[0].name} has yet to be as it was")]
    return []


def _unplaced(situation: Situation, change: Change) -> list[Pod]:
    """The pods that came in the place of those that were evicted, and have no node."""
    return [pod for pod in situation.live if change.moved and not pod.node and pod.created >= change.since]


# What is given up


def _must_give_up(situation: Situation, change: Change) -> str:
    """Why what is still waited for will not come, or not soon enough; empty where it may."""
    now, began = situation.now, max(change.since, situation.sightings.since)
    waiting = _waiting(situation, change)
    for why, pod in no_room(situation, waiting).items():
        if not _may_evict(situation, change, pod):
            return why
    long_ago = now - UNPLACED_FOR
    if unplaced := [pod for pod in _unplaced(situation, change) if max(pod.created, began) < long_ago]:
        return f"no node has room for {unplaced[0].name}"
    if error := runtime_error(situation, waiting):
        return error
    came = [pod.created for pod in situation.live if pod.ready and pod.created >= change.since]
    if now - max([began, *came]) > IN_PROGRESS_FOR or now - began > LONGEST:
        return "it took too long"
    if now - change.since > STANDS_STILL and _holds_up_relief(situation, change):
        return "more memory after an OOM kill goes first"
    return ""


def _holds_up_relief(situation: Situation, change: Change) -> bool:
    """Whether pods are killed for lack of memory, and to revert this change would bring them too little.

    A pod that crashes would not get it sooner by another change.
    """
    is_urgent = situation.is_relief_due and adds_memory(change.before, situation.wish.sizes)
    return is_urgent and not any(falls(pod) for pod in _touched(situation, change))


def _resize_to_what_fits(situation: Situation, change: Change) -> list[Deed]:
    """Have pods no longer wait for what their node does not give; a pod that has no node takes less to find one."""
    if situation.now >= change.gave_up + LAST_TRIES or not _resizes(situation):
        return []
    deeds: list[Deed] = []
    for pod in situation.live:
        size = _fitting_size(situation, change, pod)
        if size and not has_size(pod, size) and not situation.refusal(pod.uid, size):
            deeds.append(ResizePod(pod, size, Urgency.BACK))
    return deeds


def _fitting_size(situation: Situation, change: Change, pod: Pod) -> Sizes:
    """What a pod is to have of a revert that was given up; nothing where it is as it should be, or can be."""
    current = sizes_of(pod.containers)
    if pod in _unplaced(situation, change):
        return only(change.after, current)
    if pod in _touched(situation, change):
        goal = _goal(situation, change, pod)
        # The cgroup of a pod that crashes may keep its limit, but not to ask for more would be worse.
        return goal if falls(pod) else _what_fits(change, goal)
    if pod in _waiting(situation, change) and not falls(pod):
        return _what_fits(change, only(current, change.after))
    return {}


# What is left behind


def _finish(situation: Situation, marks: Marks, change: Change) -> list[Deed]:
    """Note that it is over, and tell what is not as it was."""
    kept, left = _kept(situation, change), "; ".join(_left(situation, change))
    why = f"{change.reason}; not all is as before: {left}" if left else change.reason
    reverted = _reverted(situation, marks, change, why=why[:MOST_WORDS])
    applied = _applied(situation, marks, change, kept) if kept else marks.applied
    told = [Emit("Warning", "Reverted", change.reason)]
    if left:
        told.append(Emit("Warning", "RevertIncomplete", left))
    return [WriteMarks(Marks(applied=applied, reverted=reverted)), *told]


def _kept(situation: Situation, change: Change) -> dict[str, Resources]:
    """The size that pods keep for good, since they need more memory than they had; none where they are as before.

    Pods that are replaced have what their template says.
    """
    if change.way is not Way.IN_PLACE:
        return {}
    for pod in _asked_or_changed(situation, change):
        goal = _safe_goal(situation, change, pod)
        if pod.uid not in change.odd and has_size(pod, goal) and not has_size(pod, change.before):
            return goal
    return {}


def _asked_or_changed(situation: Situation, change: Change) -> list[Pod]:
    changed = [pod for pod in situation.live if _is_changed(situation, change, pod)]
    asked = [pod for pod in _asked(situation, change) if not is_as_made(pod, situation.template)]
    return [*changed, *asked]


def _left(situation: Situation, change: Change) -> list[str]:
    """What is not as it was, and why."""
    found = []
    if _has_our_template(situation, change):
        refusal = situation.refusal(situation.workload.uid, change.template)
        found.append(f"its template keeps {said(change.after)}: {refusal or change.gave_up_why}")
    elif _is_rolled_back(situation, change):
        why = "its rollout is paused" if situation.workload.paused else change.gave_up_why
        found.append(f"{why}, its pods have yet to be replaced by those of before")
    if kept := _kept(situation, change):
        found.append(
            f"pods keep {said(kept)}: memory is not lowered below what they need, or cannot be in place"
        )
    pods = [
        pod
        for pod in _asked_or_changed(situation, change)
        if not has_size(pod, change.before_of(pod)) and not (kept and has_size(pod, kept))
    ]
    if pods:
        refusal = situation.refusal(pods[0].uid, _goal(situation, change, pods[0]))
        others = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
        why = refusal or change.gave_up_why or "its pods cannot be resized in place"
        found.append(
            f"{pods[0].name}{others} keeps {said(only(sizes_of(pods[0].containers), change.after))}: {why}"
        )
    return found


def _applied(situation: Situation, marks: Marks, change: Change, kept: Sizes) -> Applied:
    """Pods that come later get what the others keep."""
    return Applied(
        id=f"{change.id}-kept",
        at=situation.now,
        sizes=dict(kept),
        template=situation.template,
        before=change.after,
        until=situation.now,
        restarted=restarted_at(marks, change),
        started=limits_at_start(situation, marks),
    )


def _reverted(situation: Situation, marks: Marks, change: Change, *, why: str) -> Reverted:
    last, now = marks.reverted, situation.now
    blamed = not (change.blameless or change.relief)
    times = (last.times if last else 0) + blamed
    until, relief_until = now + (rest(times) if blamed else BLAMELESS_REST), 0
    if change.relief:
        relief_until = now + (BLAMELESS_REST if change.blameless else _relief_rest(last))
        # What was reverted before rests as long as it was to.
        until = max(relief_until, last.until if last else 0)
    return Reverted(id=change.id, at=now, why=why, times=times, until=until, relief_until=relief_until)


def _relief_rest(last: Reverted | None) -> int:
    """Seconds until more memory is tried again that could not be given: twice as long as the last time, at most an hour."""
    rested = last.relief_until - last.at if last and last.relief_until else 0
    return min(FIRST_REST, max(BLAMELESS_REST, 2 * rested))
