"""Revert a change: restore the previous size on every pod that has the new one, then wait for a cooldown.

A revert waits for no window and no evidence; only where pods have to be evicted, they go one after another.
Pods that never had the new size keep theirs, and so does a template that somebody else has changed meanwhile.

Every wait ends. If a node cannot give back the size, the pod is evicted, provided that the policy allows
evictions and the template requests enough. What cannot be restored in time is abandoned: pods then keep what
they have, an Event names them and the reason, and the next change may start. Memory is lowered no further
than is safe, as in any change.
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
"""Seconds of cooldown after a change that was superseded by somebody else's, which should be over by then."""
OOM_RELIEF_GRACE = 60
"""Seconds after which more memory for OOM killed pods goes before a revert that still waits."""
FINAL_RESIZE_PERIOD = 300
"""Seconds for which pods are resized to the part of an abandoned revert that fits."""
MAX_REASON = 2048
"""The most characters of a reason, including what was not restored."""


def revert(situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange) -> list[ChangeAction]:
    """Return the next actions of a revert."""
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


def compute_cooldown(times: int) -> int:
    """Return the seconds of cooldown after this many reverts in a row."""
    return int(min(MAX_COOLDOWN, MIN_COOLDOWN * 2 ** min(times - 1, 16)))


# Which pods, and to which size


def _pods_to_revert(situation: ChangeContext, change: OngoingChange) -> list[Pod]:
    """Return the pods that have the size of the change and are to have another: all of them if pods are
    replaced.
    """
    changed = [pod for pod in situation.live if _has_changed_size(situation, change, pod)]
    if change.way in REPLACING_METHODS:
        return changed
    return [pod for pod in changed if not has_size(pod, _revert_size(situation, change, pod))]


def _has_changed_size(situation: ChangeContext, change: OngoingChange, pod: Pod) -> bool:
    """Return whether the pod has the size of the change, and not because its template now has it."""
    if change.way is UpdateMethod.TEMPLATE or has_size(pod, change.previous_size(pod)):
        return False
    by_template = situation.template_sizes != change.template and has_template_size(
        pod, situation.template_sizes
    )
    return has_size(pod, change.after) and not by_template


def _pods_asked_back(situation: ChangeContext, change: OngoingChange) -> list[Pod]:
    """Return the pods with their previous size, or a part of it, in their spec: they were asked to go
    back, or never changed.
    """
    if change.way is UpdateMethod.TEMPLATE:
        return []
    return [
        pod
        for pod in situation.live
        if not has_size(pod, change.after)
        and is_between(container_sizes(pod.containers), change.previous_size(pod), change.after)
    ]


def _unsettled_pods(situation: ChangeContext, change: OngoingChange) -> list[Pod]:
    """Return the pods that were asked to go back and have not settled yet. Pods that wait since before the
    revert are not ours.
    """
    seen = situation.observations.unsettled_since
    return [
        pod
        for pod in _pods_asked_back(situation, change)
        if not is_settled(pod, container_sizes(pod.containers))
        and seen.get(pod.uid, situation.now) >= change.since
    ]


def _revert_size(situation: ChangeContext, change: OngoingChange, pod: Pod) -> dict[str, Resources]:
    """Return the size to which a pod goes back. Memory that never came into effect is not in use, so it needs
    no safety check.
    """
    if pod.node and is_settled(pod, change.after):
        return _safe_revert_size(situation, change, pod)
    return _previous_size(change, pod)


def _safe_revert_size(situation: ChangeContext, change: OngoingChange, pod: Pod) -> dict[str, Resources]:
    """Return the previous size of a pod, with memory no lower than is safe and than the cluster can make it."""
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
    """Return the part of a size that a full node, and a server that lowers no memory limit, can give."""
    return {name: fit_without_growth(change.after[name], size) for name, size in wanted.items()}


def _can_resize(situation: ChangeContext) -> bool:
    return situation.desired.can_resize_in_place and situation.strategy.allow_in_place_resize


# What is done, and waited for


def _restore_template(situation: ChangeContext, change: OngoingChange) -> list[ChangeAction]:
    if not _has_our_template(situation, change):
        return []
    if situation.rejection(situation.workload.uid, change.template):
        return []  # The template stays as it is, and so do the pods created from it.
    return [PatchTemplate(change.template, situation.strategy.take_ownership)]


def _has_our_template(situation: ChangeContext, change: OngoingChange) -> bool:
    ours = merge_sizes(change.template, change.after)
    return change.patches_template and situation.template_sizes == ours != change.template


def _replace_pods(situation: ChangeContext, change: OngoingChange) -> list[ChangeAction]:
    """Replace the pods that were created by the change, or wait until their controller has done so."""
    touched = _pods_to_revert(situation, change)
    if change.way is UpdateMethod.ROLLOUT and (halting := pods_skipped_by_controller(situation, touched)):
        return [EvictPod(halting[0], Priority.REVERT)]
    # A paused controller does nothing: pods are resized if possible, and replaced when it resumes.
    if _is_rolling_back(situation, change) and not situation.workload.paused:
        return [Wait(situation.now + POLL_INTERVAL, "its pods are being replaced by those of before")]
    if touched and change.way is UpdateMethod.RECREATE:
        return [_evict_next_pod(situation, change, touched)]
    return []


def _is_rolling_back(situation: ChangeContext, change: OngoingChange) -> bool:
    workload = situation.workload
    return change.way is UpdateMethod.ROLLOUT and (workload.is_rolling_out or not workload.is_spec_observed)


def _evict_next_pod(situation: ChangeContext, change: OngoingChange, touched: Sequence[Pod]) -> ChangeAction:
    """Recreate one pod: an unready one first, because it serves nobody, and a ready one only while few are
    missing.

    Unready pods from before the change are not waited for: their problem is not ours, and may last forever.
    """
    first = min(touched, key=lambda pod: pod.ready)
    lacking = situation.unavailable_pods - sum(
        not pod.ready and pod.created <= change.started for pod in situation.live
    )
    if first.ready and lacking > 0:
        return Wait(situation.now + POLL_INTERVAL, f"{lacking} of its pods are missing or not ready")
    return EvictPod(first, Priority.REVERT)


def _resize_back(situation: ChangeContext, change: OngoingChange) -> list[ChangeAction]:
    """Resize pods back to their previous size, or to the part of it that the server does not reject."""
    deeds: list[ChangeAction] = []
    for pod in _pods_to_revert(situation, change):
        goal = _revert_size(situation, change, pod)
        sizes = [
            size
            for size in (goal, _fitting_part(change, goal))
            if not has_size(pod, size) and not situation.rejection(pod.uid, size)
        ]
        # A resize of a crash-looping pod would not reach its cgroup.
        if sizes and _can_resize(situation) and not is_crash_looping(pod):
            deeds.append(ResizePod(pod, sizes[0], Priority.REVERT))
    return deeds


def _evict_stuck_pod(
    situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange
) -> list[ChangeAction]:
    """Evict one pod whose node has no capacity for it, or that crashes before it can be resized."""
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
    """Return whether a pod may be evicted, once, and returns large enough with the size of its template.

    A Job's pod would lose its work, and a DaemonSet's would return to the same node.
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
        return [Wait(again, f"{pods[0].name} does not have its previous size yet")]
    return []


def _unscheduled_pods(situation: ChangeContext, change: OngoingChange) -> list[Pod]:
    """Return the pods that replaced evicted ones and have no node."""
    return [pod for pod in situation.live if change.moved and not pod.node and pod.created >= change.since]


# What is given up


def _give_up_reason(situation: ChangeContext, change: OngoingChange) -> str:
    """Return why the rest of the revert will not happen, or not soon enough; empty if it may."""
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
    """Return whether pods are OOM killed and reverting this change would give them too little memory.

    A crash-looping pod would not get memory sooner by another change.
    """
    is_urgent = situation.is_oom_relief_due and adds_memory(change.before, situation.desired.sizes)
    return is_urgent and not any(is_crash_looping(pod) for pod in _pods_to_revert(situation, change))


def _resize_to_fitting_part(situation: ChangeContext, change: OngoingChange) -> list[ChangeAction]:
    """Resize pods to what their nodes can give, so that they stop waiting; a pod without a node gets less to
    find one.
    """
    if situation.now >= change.gave_up + FINAL_RESIZE_PERIOD or not _can_resize(situation):
        return []
    deeds: list[ChangeAction] = []
    for pod in situation.live:
        size = _fitting_size(situation, change, pod)
        if size and not has_size(pod, size) and not situation.rejection(pod.uid, size):
            deeds.append(ResizePod(pod, size, Priority.REVERT))
    return deeds


def _fitting_size(situation: ChangeContext, change: OngoingChange, pod: Pod) -> Sizes:
    """Return the size that a pod keeps after an abandoned revert; nothing if its size is right, or cannot be
    changed.
    """
    current = container_sizes(pod.containers)
    if pod in _unscheduled_pods(situation, change):
        return select_sizes(change.after, current)
    if pod in _pods_to_revert(situation, change):
        goal = _revert_size(situation, change, pod)
        # The cgroup of a crash-looping pod may keep its limit, but not asking for more would be worse.
        return goal if is_crash_looping(pod) else _fitting_part(change, goal)
    if pod in _unsettled_pods(situation, change) and not is_crash_looping(pod):
        return _fitting_part(change, select_sizes(current, change.after))
    return {}


# What is left behind


def _finish(situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange) -> list[ChangeAction]:
    """Record the end of the revert and report what was not restored."""
    kept, left = _kept_size(situation, change), "; ".join(_describe_leftovers(situation, change))
    why = f"{change.reason}; not all is as before: {left}" if left else change.reason
    reverted = _build_revert_record(situation, marks, change, why=why[:MAX_REASON])
    applied = _build_applied_sizes(situation, marks, change, kept) if kept else marks.applied
    told = [EmitEvent("Warning", "Reverted", change.reason)]
    if left:
        told.append(EmitEvent("Warning", "RevertIncomplete", left))
    return [WriteAnnotations(ChangeAnnotations(applied=applied, reverted=reverted)), *told]


def _kept_size(situation: ChangeContext, change: OngoingChange) -> dict[str, Resources]:
    """Return the size that pods keep because they need more memory than before; empty if all is as before.

    Pods that are replaced have the size of their template.
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
    """Describe what was not restored, and why."""
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
    """Return the applied sizes that give later pods the size that the others keep."""
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
    until, relief_until = now + (compute_cooldown(times) if blamed else NOT_AT_FAULT_COOLDOWN), 0
    if change.relief:
        relief_until = now + (NOT_AT_FAULT_COOLDOWN if change.blameless else _oom_relief_cooldown(last))
        # The cooldown of an earlier revert goes on unchanged.
        until = max(relief_until, last.until if last else 0)
    return RevertRecord(id=change.id, at=now, why=why, times=times, until=until, relief_until=relief_until)


def _oom_relief_cooldown(last: RevertRecord | None) -> int:
    """Return the seconds until memory that could not be added is tried again: twice the last wait, at most an
    hour.
    """
    rested = last.relief_until - last.at if last and last.relief_until else 0
    return min(MIN_COOLDOWN, max(NOT_AT_FAULT_COOLDOWN, 2 * rested))
