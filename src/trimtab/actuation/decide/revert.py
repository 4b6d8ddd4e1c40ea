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
    ChangeAction,
    EmitEvent,
    EvictPod,
    PatchTemplate,
    Priority,
    ResizePod,
    Wait,
    WriteAnnotations,
)
from trimtab.actuation.change_annotations import (
    AppliedSizes,
    ChangeAnnotations,
    OngoingChange,
    RevertRecord,
    UpdateMethod,
)
from trimtab.actuation.decide.advance import POLL_INTERVAL, heap_limits_at_start, last_restart, update_change
from trimtab.actuation.decide.conflicts import REPLACING_METHODS, is_crash_looping, pods_skipped_by_controller
from trimtab.actuation.decide.context import ChangeContext
from trimtab.actuation.decide.stalls import (
    CRASH_LOOP_TIMEOUT,
    MAX_DURATION,
    PROGRESS_TIMEOUT,
    UNSCHEDULED_TIMEOUT,
    count_missing_pods,
    pods_without_capacity,
    runtime_error,
)
from trimtab.actuation.resources import (
    Sizes,
    adds_memory,
    container_sizes,
    fit_without_growth,
    format_sizes,
    has_size,
    has_template_size,
    increases_requests,
    is_between,
    is_settled,
    keep_memory_limit,
    limit_memory_decrease,
    merge_sizes,
    select_sizes,
)
from trimtab.kube.kinds.pods import Pod, Resources

MIN_COOLDOWN = 3600
MAX_COOLDOWN = 7 * 24 * 3600
NOT_AT_FAULT_COOLDOWN = 300
"""For a change that was overtaken by somebody else's: what they do should be over by then."""
OOM_RELIEF_GRACE = 60
"""Seconds after which more memory for pods that are killed for lack of it goes before a revert that still waits."""
FINAL_RESIZE_PERIOD = 300
"""Seconds for which pods are brought to what can be had of a revert that was given up."""
MAX_REASON = 2048
"""Letters of why, and what is not as before."""


def revert(situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange) -> list[ChangeAction]:
    """One step back."""
    if change.gave_up:
        return _resize_to_fitting_part(situation, change) or _finish(situation, marks, change)
    if why := _give_up_reason(situation, change):
        return [update_change(marks, change, gave_up=situation.now, gave_up_why=why)]
    return (
        _restore_template(situation, change)
        or _replace_pods(situation, change)
        or _resize_back(situation, change)
        or _evict_stuck_pod(situation, marks, change)
        or _wait_for_pods(situation, change)
        or _finish(situation, marks, change)
    )


def cooldown(times: int) -> int:
    """Seconds of peace after so many changes in a row were taken back."""
    return int(min(MAX_COOLDOWN, MIN_COOLDOWN * 2 ** min(times - 1, 16)))


# Which pods, and to which size


def _pods_to_revert(situation: ChangeContext, change: OngoingChange) -> list[Pod]:
    """The pods that have the size of the change, and are to have another: all where they are replaced."""
    changed = [pod for pod in situation.live if _has_changed_size(situation, change, pod)]
    if change.way in REPLACING_METHODS:
        return changed
    return [pod for pod in changed if not has_size(pod, _revert_size(situation, change, pod))]


def _has_changed_size(situation: ChangeContext, change: OngoingChange, pod: Pod) -> bool:
    """Whether the pod has the size that the change gave it, and not because its template now says so."""
    if change.way is UpdateMethod.TEMPLATE or has_size(pod, change.previous_size(pod)):
        return False
    by_template = situation.template_sizes != change.template and has_template_size(
        pod, situation.template_sizes
    )
    return has_size(pod, change.after) and not by_template


def _pods_asked_back(situation: ChangeContext, change: OngoingChange) -> list[Pod]:
    """The pods that have what they had, or some of it, in their spec: they were asked to go back, or never changed."""
    if change.way is UpdateMethod.TEMPLATE:
        return []
    return [
        pod
        for pod in situation.live
        if not has_size(pod, change.after)
        and is_between(container_sizes(pod.containers), change.previous_size(pod), change.after)
    ]


def _unsettled_pods(situation: ChangeContext, change: OngoingChange) -> list[Pod]:
    """Those that were asked to go back and have it not in effect yet; others that wait do so for longer than this."""
    seen = situation.observations.unsettled_since
    return [
        pod
        for pod in _pods_asked_back(situation, change)
        if not is_settled(pod, container_sizes(pod.containers))
        and seen.get(pod.uid, situation.now) >= change.since
    ]


def _revert_size(situation: ChangeContext, change: OngoingChange, pod: Pod) -> dict[str, Resources]:
    """The size that a pod of the change's size goes back to. Of memory that never came into effect nothing is in use."""
    if pod.node and is_settled(pod, change.after):
        return _safe_revert_size(situation, change, pod)
    return _previous_size(change, pod)


def _safe_revert_size(situation: ChangeContext, change: OngoingChange, pod: Pod) -> dict[str, Resources]:
    """What a pod had, with memory no lower than is safe, and no lower than the cluster can make it."""
    before, goal = _previous_size(change, pod), {}
    for each in pod.containers:
        if each.name in before:
            has, need = change.after[each.name], situation.desired.needed_memory.get(each.name)
            wanted = limit_memory_decrease(has, before[each.name], need=need)
            stays = situation.desired.memory_limits_fixed and not each.restart_on_memory_resize
            goal[each.name] = keep_memory_limit(has, wanted) if stays else wanted
    return goal


def _previous_size(change: OngoingChange, pod: Pod) -> dict[str, Resources]:
    return select_sizes(change.previous_size(pod), container_sizes(pod.containers))


def _fitting_part(change: OngoingChange, wanted: Sizes) -> dict[str, Resources]:
    """What can be had of a size on a node without room, and of a server that lowers no memory limit."""
    return {name: fit_without_growth(change.after[name], size) for name, size in wanted.items()}


def _can_resize(situation: ChangeContext) -> bool:
    return situation.desired.can_resize_in_place and situation.strategy.allow_in_place_resize


# What is done, and waited for


def _restore_template(situation: ChangeContext, change: OngoingChange) -> list[ChangeAction]:
    if not _has_our_template(situation, change):
        return []
    if situation.rejection(situation.workload.uid, change.template):
        return []  # it stays as it is, and so do pods that come from it
    return [PatchTemplate(change.template, situation.strategy.take_ownership)]


def _has_our_template(situation: ChangeContext, change: OngoingChange) -> bool:
    ours = merge_sizes(change.template, change.after)
    return change.patches_template and situation.template_sizes == ours != change.template


def _replace_pods(situation: ChangeContext, change: OngoingChange) -> list[ChangeAction]:
    """Have pods replaced that came by the change, or wait until their controller has done so."""
    touched = _pods_to_revert(situation, change)
    if change.way is UpdateMethod.ROLLOUT and (halting := pods_skipped_by_controller(situation, touched)):
        return [EvictPod(halting[0], Priority.REVERT)]
    # A controller that is paused does nothing: pods are resized if they can be, and replaced when it goes on.
    if _is_rolling_back(situation, change) and not situation.workload.paused:
        return [Wait(situation.now + POLL_INTERVAL, "its pods are being replaced by those of before")]
    if touched and change.way is UpdateMethod.RECREATE:
        return [_evict_next_pod(situation, change, touched)]
    return []


def _is_rolling_back(situation: ChangeContext, change: OngoingChange) -> bool:
    workload = situation.workload
    return change.way is UpdateMethod.ROLLOUT and (workload.is_rolling_out or not workload.is_spec_observed)


def _evict_next_pod(situation: ChangeContext, change: OngoingChange, touched: Sequence[Pod]) -> ChangeAction:
    """Have one made anew: who is not ready serves nobody, and of the others only while few are missing.

    Pods of before the change are not waited for: what ails them is not ours, and may be so for ever.
    """
    first = min(touched, key=lambda pod: pod.ready)
    lacking = situation.unavailable_pods - sum(
        not pod.ready and pod.created <= change.started for pod in situation.live
    )
    if first.ready and lacking > 0:
        return Wait(situation.now + POLL_INTERVAL, f"{lacking} of its pods are missing or not ready")
    return EvictPod(first, Priority.REVERT)


def _resize_back(situation: ChangeContext, change: OngoingChange) -> list[ChangeAction]:
    """Resize pods back to what they had, or to what the server does not refuse of that."""
    deeds: list[ChangeAction] = []
    for pod in _pods_to_revert(situation, change):
        goal = _revert_size(situation, change, pod)
        sizes = [
            size
            for size in (goal, _fitting_part(change, goal))
            if not has_size(pod, size) and not situation.rejection(pod.uid, size)
        ]
        # A resize of a pod that crashes would not reach its cgroup.
        if sizes and _can_resize(situation) and not is_crash_looping(pod):
            deeds.append(ResizePod(pod, sizes[0], Priority.REVERT))
    return deeds


def _evict_stuck_pod(
    situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange
) -> list[ChangeAction]:
    """Evict one pod that its node has no room for, or that crashes before it can be resized."""
    stuck = pods_without_capacity(situation, _unsettled_pods(situation, change))
    if situation.now - change.since >= CRASH_LOOP_TIMEOUT:
        fallen = [pod for pod in _pods_to_revert(situation, change) if is_crash_looping(pod)]
        stuck |= {f"{pod.name} crashes before it can be resized": pod for pod in fallen}
    found = {why: pod for why, pod in stuck.items() if _may_evict(situation, change, pod)}
    if not found:
        return []
    if not change.moved:
        return [update_change(marks, change, moved=True)]
    why, pod = next(iter(found.items()))
    if situation.unavailable_pods and pod.ready:
        return [
            Wait(
                situation.now + POLL_INTERVAL,
                f"{situation.unavailable_pods} of its pods are missing or not ready",
            )
        ]
    return [EvictPod(pod, Priority.REVERT), EmitEvent("Normal", "Replacing", f"{pod.name} is evicted: {why}")]


def _may_evict(situation: ChangeContext, change: OngoingChange, pod: Pod) -> bool:
    """Whether a pod may be evicted, once, and comes back large enough: it comes of its template's size.

    A Job's would lose what it has done, and a DaemonSet's would come to the same node.
    """
    workload, made = situation.workload, change.before | situation.template_sizes
    return (
        situation.strategy.allow_recreate
        and workload.kind != "DaemonSet"
        and workload.is_long_running
        and pod.created < change.since
        and not increases_requests(made, change.previous_size(pod))
    )


def _wait_for_pods(situation: ChangeContext, change: OngoingChange) -> list[ChangeAction]:
    again = situation.now + POLL_INTERVAL
    fallen = [pod for pod in _pods_to_revert(situation, change) if is_crash_looping(pod)]
    if fallen and _can_resize(situation):
        return [Wait(again, f"{fallen[0].name} crashes before it can be resized")]
    if change.moved and (away := count_missing_pods(situation)):
        return [Wait(again, f"{away} of its pods are missing")]
    if pods := _unsettled_pods(situation, change) or _unscheduled_pods(situation, change):
        return [Wait(again, f"{pods[0].name} has yet to be as it was")]
    return []


def _unscheduled_pods(situation: ChangeContext, change: OngoingChange) -> list[Pod]:
    """The pods that came in the place of those that were evicted, and have no node."""
    return [pod for pod in situation.live if change.moved and not pod.node and pod.created >= change.since]


# What is given up


def _give_up_reason(situation: ChangeContext, change: OngoingChange) -> str:
    """Why what is still waited for will not come, or not soon enough; empty where it may."""
    now, began = situation.now, max(change.since, situation.observations.observed_since)
    waiting = _unsettled_pods(situation, change)
    for why, pod in pods_without_capacity(situation, waiting).items():
        if not _may_evict(situation, change, pod):
            return why
    long_ago = now - UNSCHEDULED_TIMEOUT
    if unplaced := [
        pod for pod in _unscheduled_pods(situation, change) if max(pod.created, began) < long_ago
    ]:
        return f"no node has room for {unplaced[0].name}"
    if error := runtime_error(situation, waiting):
        return error
    came = [pod.created for pod in situation.live if pod.ready and pod.created >= change.since]
    if now - max([began, *came]) > PROGRESS_TIMEOUT or now - began > MAX_DURATION:
        return "it took too long"
    if now - change.since > OOM_RELIEF_GRACE and _blocks_oom_relief(situation, change):
        return "more memory after an OOM kill goes first"
    return ""


def _blocks_oom_relief(situation: ChangeContext, change: OngoingChange) -> bool:
    """Whether pods are killed for lack of memory, and to revert this change would bring them too little.

    A pod that crashes would not get it sooner by another change.
    """
    is_urgent = situation.is_oom_relief_due and adds_memory(change.before, situation.desired.sizes)
    return is_urgent and not any(is_crash_looping(pod) for pod in _pods_to_revert(situation, change))


def _resize_to_fitting_part(situation: ChangeContext, change: OngoingChange) -> list[ChangeAction]:
    """Have pods no longer wait for what their node does not give; a pod that has no node takes less to find one."""
    if situation.now >= change.gave_up + FINAL_RESIZE_PERIOD or not _can_resize(situation):
        return []
    deeds: list[ChangeAction] = []
    for pod in situation.live:
        size = _fitting_size(situation, change, pod)
        if size and not has_size(pod, size) and not situation.rejection(pod.uid, size):
            deeds.append(ResizePod(pod, size, Priority.REVERT))
    return deeds


def _fitting_size(situation: ChangeContext, change: OngoingChange, pod: Pod) -> Sizes:
    """What a pod is to have of a revert that was given up; nothing where it is as it should be, or can be."""
    current = container_sizes(pod.containers)
    if pod in _unscheduled_pods(situation, change):
        return select_sizes(change.after, current)
    if pod in _pods_to_revert(situation, change):
        goal = _revert_size(situation, change, pod)
        # The cgroup of a pod that crashes may keep its limit, but not to ask for more would be worse.
        return goal if is_crash_looping(pod) else _fitting_part(change, goal)
    if pod in _unsettled_pods(situation, change) and not is_crash_looping(pod):
        return _fitting_part(change, select_sizes(current, change.after))
    return {}


# What is left behind


def _finish(situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange) -> list[ChangeAction]:
    """Note that it is over, and tell what is not as it was."""
    kept, left = _kept_size(situation, change), "; ".join(_describe_leftovers(situation, change))
    why = f"{change.reason}; not all is as before: {left}" if left else change.reason
    reverted = _build_revert_record(situation, marks, change, why=why[:MAX_REASON])
    applied = _build_applied_sizes(situation, marks, change, kept) if kept else marks.applied
    told = [EmitEvent("Warning", "Reverted", change.reason)]
    if left:
        told.append(EmitEvent("Warning", "RevertIncomplete", left))
    return [WriteAnnotations(ChangeAnnotations(applied=applied, reverted=reverted)), *told]


def _kept_size(situation: ChangeContext, change: OngoingChange) -> dict[str, Resources]:
    """The size that pods keep for good, since they need more memory than they had; none where they are as before.

    Pods that are replaced have what their template says.
    """
    if change.way is not UpdateMethod.IN_PLACE:
        return {}
    for pod in _affected_pods(situation, change):
        goal = _safe_revert_size(situation, change, pod)
        if pod.uid not in change.odd and has_size(pod, goal) and not has_size(pod, change.before):
            return goal
    return {}


def _affected_pods(situation: ChangeContext, change: OngoingChange) -> list[Pod]:
    changed = [pod for pod in situation.live if _has_changed_size(situation, change, pod)]
    asked = [
        pod
        for pod in _pods_asked_back(situation, change)
        if not has_template_size(pod, situation.template_sizes)
    ]
    return [*changed, *asked]


def _describe_leftovers(situation: ChangeContext, change: OngoingChange) -> list[str]:
    """What is not as it was, and why."""
    found = []
    if _has_our_template(situation, change):
        refusal = situation.rejection(situation.workload.uid, change.template)
        found.append(f"its template keeps {format_sizes(change.after)}: {refusal or change.gave_up_why}")
    elif _is_rolling_back(situation, change):
        why = "its rollout is paused" if situation.workload.paused else change.gave_up_why
        found.append(f"{why}, its pods have yet to be replaced by those of before")
    if kept := _kept_size(situation, change):
        found.append(
            f"pods keep {format_sizes(kept)}: memory is not lowered below what they need, or cannot be in place"
        )
    pods = [
        pod
        for pod in _affected_pods(situation, change)
        if not has_size(pod, change.previous_size(pod)) and not (kept and has_size(pod, kept))
    ]
    if pods:
        refusal = situation.rejection(pods[0].uid, _revert_size(situation, change, pods[0]))
        others = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
        why = refusal or change.gave_up_why or "its pods cannot be resized in place"
        found.append(
            f"{pods[0].name}{others} keeps {format_sizes(select_sizes(container_sizes(pods[0].containers), change.after))}: {why}"
        )
    return found


def _build_applied_sizes(
    situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange, kept: Sizes
) -> AppliedSizes:
    """Pods that come later get what the others keep."""
    return AppliedSizes(
        id=f"{change.id}-kept",
        at=situation.now,
        sizes=dict(kept),
        template=situation.template_sizes,
        before=change.after,
        until=situation.now,
        restarted=last_restart(marks, change),
        started=heap_limits_at_start(situation, marks),
    )


def _build_revert_record(
    situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange, *, why: str
) -> RevertRecord:
    last, now = marks.reverted, situation.now
    blamed = not (change.blameless or change.relief)
    times = (last.times if last else 0) + blamed
    until, relief_until = now + (cooldown(times) if blamed else NOT_AT_FAULT_COOLDOWN), 0
    if change.relief:
        relief_until = now + (NOT_AT_FAULT_COOLDOWN if change.blameless else _oom_relief_cooldown(last))
        # What was reverted before rests as long as it was to.
        until = max(relief_until, last.until if last else 0)
    return RevertRecord(id=change.id, at=now, why=why, times=times, until=until, relief_until=relief_until)


def _oom_relief_cooldown(last: RevertRecord | None) -> int:
    """Seconds until more memory is tried again that could not be given: twice as long as the last time, at most an hour."""
    rested = last.relief_until - last.at if last and last.relief_until else 0
    return min(MIN_COOLDOWN, max(NOT_AT_FAULT_COOLDOWN, 2 * rested))
