"""Predicates and actions of a revert: restore the previous size on every pod that has the new one, then wait for a
cooldown. `transitions` lists them in order.

A revert waits for no window and no evidence; only where pods have to be evicted, they go one after another.
Pods that never had the new size keep theirs, and so does a template that somebody else has changed meanwhile.

Every wait ends. If a node cannot give back the size, the pod is evicted, provided that the policy allows
evictions and the template requests enough. What cannot be restored in time is abandoned: pods then keep what
they have, an Event names them and the reason, and the next change may start. Memory is lowered no further
than is safe, as in any change.
"""

from __future__ import annotations

import msgspec

from trimtab.actuation.actions import (
    ChangeAction,
    EmitEvent,
    EvictPod,
    PatchTemplate,
    Priority,
    ResizePod,
    WriteAnnotations,
)
from trimtab.actuation.change_annotations import (
    MAX_TEXT_LENGTH,
    AppliedSizes,
    ChangeAnnotations,
    OngoingChange,
    RevertRecord,
    UpdateMethod,
)
from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.decide.advance import (
    describe_missing,
    describe_unavailable,
    heap_limits_at_start,
    last_restart,
    poll,
    unavailable_reason,
    update_change,
)
from trimtab.actuation.decide.conflicts import REPLACING_METHODS, template_rejection_reason
from trimtab.actuation.decide.observation import Observation, evaluated_once
from trimtab.actuation.decide.stalls import (
    is_crash_looping,
    pods_skipped_by_controller,
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
from trimtab.printable import shorten
from trimtab.timing import Backoff


def compute_cooldown(times: int) -> int:
    """Return the seconds of cooldown after this many reverts in a row."""
    return int(Backoff(first=DEADLINES.min_cooldown, ceiling=DEADLINES.max_cooldown).delay(times))


# Which pods, and to which size


@evaluated_once
def pods_to_revert(observation: Observation) -> list[Pod]:
    """Return the pods that have the size of the change and are to have another: all of them if pods are
    replaced.
    """
    changed = [pod for pod in observation.live if _has_changed_size(observation, pod)]
    if observation.change.method in REPLACING_METHODS:
        return changed
    return [pod for pod in changed if not has_size(pod, _revert_size(observation, pod))]


def _has_changed_size(observation: Observation, pod: Pod) -> bool:
    """Return whether the pod has the size of the change, and not because its template now has it."""
    change, template = observation.change, observation.template_sizes
    if change.method is UpdateMethod.TEMPLATE or has_size(pod, change.previous_size(pod)):
        return False
    by_template = template != change.template and has_template_size(pod, template)
    return has_size(pod, change.after) and not by_template


def _pods_asked_back(observation: Observation) -> list[Pod]:
    """Return the pods with their previous size, or a part of it, in their spec: they were asked to go
    back, or never changed.
    """
    change = observation.change
    if change.method is UpdateMethod.TEMPLATE:
        return []
    return [
        pod
        for pod in observation.live
        if not has_size(pod, change.after)
        and is_between(container_sizes(pod.containers), change.previous_size(pod), change.after)
    ]


@evaluated_once
def _unsettled_pods(observation: Observation) -> list[Pod]:
    """Return the pods that were asked to go back and have not settled yet. Pods that wait since before the
    revert are not ours.
    """
    since = observation.local.unsettled_since
    return [
        pod
        for pod in _pods_asked_back(observation)
        if not is_settled(pod, container_sizes(pod.containers))
        and since.get(pod.uid, observation.now) >= observation.change.since
    ]


def _revert_size(observation: Observation, pod: Pod) -> dict[str, Resources]:
    """Return the size to which a pod goes back. Memory that never came into effect is not in use, so it needs
    no safety check.
    """
    if pod.node and is_settled(pod, observation.change.after):
        return _safe_revert_size(observation, pod)
    return _previous_size(observation.change, pod)


def _safe_revert_size(observation: Observation, pod: Pod) -> dict[str, Resources]:
    """Return the previous size of a pod, with memory no lower than is safe and than the cluster can make it."""
    change, desired = observation.change, observation.desired
    before, goal = _previous_size(change, pod), {}
    for each in pod.containers:
        if each.name in before:
            now, need = change.after[each.name], desired.needed_memory.get(each.name)
            wanted = limit_memory_decrease(now, before[each.name], need=need)
            stays = desired.memory_limits_fixed and not each.restart_on_memory_resize
            goal[each.name] = keep_memory_limit(now, wanted) if stays else wanted
    return goal


def _previous_size(change: OngoingChange, pod: Pod) -> dict[str, Resources]:
    return select_sizes(change.previous_size(pod), container_sizes(pod.containers))


def _fitting_part(change: OngoingChange, wanted: Sizes) -> dict[str, Resources]:
    """Return the part of a size that a full node, and a server that lowers no memory limit, can give."""
    return {name: fit_without_growth(change.after[name], size) for name, size in wanted.items()}


def _can_resize(observation: Observation) -> bool:
    return observation.desired.can_resize_in_place and observation.strategy.allow_in_place_resize


# The template, and pods that are replaced


def restores_template(observation: Observation) -> bool:
    """Return whether the template has our sizes and can get the old ones."""
    # A rejected template stays as it is, and so do the pods created from it: the revert ends without it.
    rejection = observation.rejection(observation.workload.uid, observation.change.template)
    return _has_our_template(observation) and not rejection


def restore_template(observation: Observation) -> list[ChangeAction]:
    """Write the old sizes to the template."""
    return [PatchTemplate(observation.change.template, observation.strategy.take_ownership)]


def _has_our_template(observation: Observation) -> bool:
    change = observation.change
    ours = merge_sizes(change.template, change.after)
    return change.patches_template and observation.template_sizes == ours != change.template


@evaluated_once
def skipped_pods(observation: Observation) -> list[Pod]:
    """Return the pods that would hold up the rollout of the old template."""
    if observation.change.method is not UpdateMethod.ROLLOUT:
        return []
    return pods_skipped_by_controller(observation, pods_to_revert(observation))


def evict_skipped_pod(observation: Observation) -> EvictPod:
    """Evict the first pod that would hold up the rollout of the old template."""
    return EvictPod(skipped_pods(observation)[0], Priority.REVERT)


def waits_for_controller(observation: Observation) -> bool:
    """Return whether the controller replaces pods by those of the old template."""
    # A paused controller does nothing: pods are resized if possible, and replaced when it resumes.
    return _is_rolling_back(observation) and not observation.workload.paused


def _is_rolling_back(observation: Observation) -> bool:
    workload = observation.workload
    is_active = workload.is_rolling_out or not workload.is_spec_observed
    return observation.change.method is UpdateMethod.ROLLOUT and is_active


def must_recreate_pods(observation: Observation) -> bool:
    """Return whether pods go back by being evicted one by one."""
    return observation.change.method is UpdateMethod.RECREATE and bool(pods_to_revert(observation))


def recreate_next_pod(observation: Observation) -> list[ChangeAction]:
    """Recreate one pod: an unready one first, because it serves nobody, and a ready one only while few are
    missing.

    Unready pods from before the change are not waited for: their problem is not ours, and may last forever.
    """
    first = min(pods_to_revert(observation), key=lambda pod: pod.ready)
    started = observation.change.started
    earlier = sum(not pod.ready and pod.created <= started for pod in observation.live)
    unavailable = observation.unavailable_pods - earlier
    if first.ready and unavailable > 0:
        return poll(observation, describe_unavailable(unavailable))
    return [EvictPod(first, Priority.REVERT)]


# Pods that are resized


@evaluated_once
def resizes_back(observation: Observation) -> list[ChangeAction]:
    """Return the resizes of pods to their previous size, or to the part of it that the server does not reject."""
    resizes: list[ChangeAction] = []
    for pod in pods_to_revert(observation):
        goal = _revert_size(observation, pod)
        sizes = [
            size
            for size in (goal, _fitting_part(observation.change, goal))
            if not has_size(pod, size) and not observation.rejection(pod.uid, size)
        ]
        # A resize of a crash-looping pod would not reach its cgroup.
        if sizes and _can_resize(observation) and not is_crash_looping(pod):
            resizes.append(ResizePod(pod, sizes[0], Priority.REVERT))
    return resizes


@evaluated_once
def stuck_pods(observation: Observation) -> dict[str, Pod]:
    """Return the pods that are evicted because their node has no capacity for them, or because they crash before
    they can be resized, by the message to report.
    """
    stuck = pods_without_capacity(observation, _unsettled_pods(observation))
    if observation.now - observation.change.since >= DEADLINES.crash_loop:
        crashing = [pod for pod in pods_to_revert(observation) if is_crash_looping(pod)]
        stuck |= {f"pod {pod.name} crashes before it can be resized": pod for pod in crashing}
    return {why: pod for why, pod in stuck.items() if _may_evict(observation, pod)}


def evict_stuck_pod(observation: Observation) -> list[ChangeAction]:
    """Evict one pod that cannot go back where it is; a ready one only while few are missing."""
    why, pod = next(iter(stuck_pods(observation).items()))
    if pod.ready and (unavailable := unavailable_reason(observation)):
        return poll(observation, unavailable)
    return [
        EvictPod(pod, Priority.REVERT),
        EmitEvent("Normal", "Replacing", f"evicting pod {pod.name}, because {why}"),
    ]


def _may_evict(observation: Observation, pod: Pod) -> bool:
    """Return whether a pod may be evicted, once, and returns large enough with the size of its template.

    A Job's pod would lose its work, and a DaemonSet's would return to the same node.
    """
    workload, change = observation.workload, observation.change
    created_with = change.before | observation.template_sizes
    return (
        observation.strategy.allow_recreate
        and workload.kind != "DaemonSet"
        and workload.is_long_running
        and pod.created < change.since
        and not increases_requests(created_with, change.previous_size(pod))
    )


@evaluated_once
def revert_wait_reason(observation: Observation) -> str:
    """Return what the revert waits for; empty if nothing."""
    crashing = [pod for pod in pods_to_revert(observation) if is_crash_looping(pod)]
    if crashing and _can_resize(observation):
        return f"pod {crashing[0].name} crashes before it can be resized back; see its logs"
    if observation.change.evicts_pods and (missing := observation.missing_pods):
        return describe_missing(missing)
    if pods := _unsettled_pods(observation) or _unscheduled_pods(observation):
        return f"the previous size is not in effect yet on pod {pods[0].name}"
    return ""


def _unscheduled_pods(observation: Observation) -> list[Pod]:
    """Return the pods that replaced evicted ones and have no node."""
    change = observation.change
    return [
        pod for pod in observation.live if change.evicts_pods and not pod.node and pod.created >= change.since
    ]


# What is given up


@evaluated_once
def give_up_reason(observation: Observation) -> str:
    """Return why the rest of the revert will not happen, or not soon enough; empty if it may."""
    change, now, began = observation.change, observation.now, observation.phase_began
    waiting = _unsettled_pods(observation)
    for why, pod in pods_without_capacity(observation, waiting).items():
        if not _may_evict(observation, pod):
            return why
    long_ago = now - DEADLINES.unscheduled
    unplaced = [pod for pod in _unscheduled_pods(observation) if max(pod.created, began) < long_ago]
    if unplaced:
        return f"no node has capacity for pod {unplaced[0].name}"
    if error := runtime_error(observation, waiting):
        return error
    came = [pod.created for pod in observation.live if pod.ready and pod.created >= change.since]
    is_stuck = now - max([began, *came]) > DEADLINES.progress
    # Pods that an autoscaler keeps adding would otherwise count as progress forever.
    if is_stuck or now - began > DEADLINES.max_duration:
        return "the revert did not finish in time"
    if now - change.since > DEADLINES.oom_relief_grace and _blocks_oom_relief(observation):
        return "a pod was OOM killed, and more memory for it goes first"
    return ""


def _blocks_oom_relief(observation: Observation) -> bool:
    """Return whether pods are OOM killed and reverting this change would give them too little memory.

    A crash-looping pod would not get memory sooner by another change.
    """
    adds = adds_memory(observation.change.before, observation.desired.sizes)
    if not (observation.is_oom_relief_due and adds):
        return False
    return not any(is_crash_looping(pod) for pod in pods_to_revert(observation))


def abandon_revert(observation: Observation) -> list[ChangeAction]:
    """Record that the rest of the revert is given up, before pods get the part that fits."""
    why = shorten(give_up_reason(observation), MAX_TEXT_LENGTH)
    return [update_change(observation, abandoned_at=observation.now, abandon_reason=why)]


@evaluated_once
def fitting_resizes(observation: Observation) -> list[ChangeAction]:
    """Return the resizes of pods to what their nodes can give, so that they stop waiting; a pod without a node gets
    less to find one.
    """
    is_over = observation.now >= observation.change.abandoned_at + DEADLINES.final_resize
    if is_over or not _can_resize(observation):
        return []
    resizes: list[ChangeAction] = []
    for pod in observation.live:
        size = _fitting_size(observation, pod)
        if size and not has_size(pod, size) and not observation.rejection(pod.uid, size):
            resizes.append(ResizePod(pod, size, Priority.REVERT))
    return resizes


def _fitting_size(observation: Observation, pod: Pod) -> Sizes:
    """Return the size that a pod keeps after an abandoned revert; nothing if its size is right, or cannot be
    changed.
    """
    change, current = observation.change, container_sizes(pod.containers)
    if pod in _unscheduled_pods(observation):
        return observation.desired.size_limits.clamp(select_sizes(change.after, current), template=current)
    if pod in pods_to_revert(observation):
        goal = _revert_size(observation, pod)
        # The cgroup of a crash-looping pod may keep its limit, but not asking for more would be worse.
        return goal if is_crash_looping(pod) else _fitting_part(change, goal)
    if pod in _unsettled_pods(observation) and not is_crash_looping(pod):
        return _fitting_part(change, select_sizes(current, change.after))
    return {}


# What was never changed


def refused_template(observation: Observation) -> str:
    """Return why the template of a workload that is sized by it alone cannot be changed; empty if it can.

    Nothing has been changed then that could be reverted.
    """
    change = observation.change
    is_untouched = observation.template_sizes == change.template
    by_template = change.method is UpdateMethod.TEMPLATE and is_untouched
    return template_rejection_reason(observation) if by_template else ""


def record_refusal(observation: Observation) -> list[ChangeAction]:
    """Record that the server refused the change, and when it is tried again."""
    record = _build_revert_record(observation, why=shorten(refused_template(observation), MAX_TEXT_LENGTH))
    refused = msgspec.structs.replace(
        record, refused=True, take_ownership=observation.strategy.take_ownership
    )
    return [WriteAnnotations(ChangeAnnotations(applied=observation.annotations.applied, reverted=refused))]


# What is left behind


def finish_revert(observation: Observation) -> list[ChangeAction]:
    """Record the end of the revert and report what was not restored."""
    change, kept = observation.change, _kept_size(observation)
    left = "; ".join(_describe_leftovers(observation))
    why = f"{change.reason}; not everything was restored: {left}" if left else change.reason
    reverted = _build_revert_record(observation, why=shorten(why, MAX_TEXT_LENGTH))
    applied = _build_applied_sizes(observation, kept) if kept else observation.annotations.applied
    sizes = f"reverted from {format_sizes(change.after)} to {format_sizes(change.before)}"
    events = [EmitEvent("Warning", "Reverted", f"{sizes}, because {change.reason}")]
    if left:
        events.append(
            EmitEvent("Warning", "RevertIncomplete", f"the revert did not restore everything: {left}")
        )
    return [WriteAnnotations(ChangeAnnotations(applied=applied, reverted=reverted)), *events]


@evaluated_once
def _kept_size(observation: Observation) -> dict[str, Resources]:
    """Return the size that pods keep because they need more memory than before; empty if all is as before.

    Pods that are replaced have the size of their template.
    """
    change = observation.change
    if change.method is not UpdateMethod.IN_PLACE:
        return {}
    for pod in _affected_pods(observation):
        goal = _safe_revert_size(observation, pod)
        if pod.uid not in change.pod_overrides and has_size(pod, goal) and not has_size(pod, change.before):
            return goal
    return {}


def _affected_pods(observation: Observation) -> list[Pod]:
    changed = [pod for pod in observation.live if _has_changed_size(observation, pod)]
    asked = [
        pod for pod in _pods_asked_back(observation) if not has_template_size(pod, observation.template_sizes)
    ]
    return [*changed, *asked]


def _describe_leftovers(observation: Observation) -> list[str]:
    """Describe what was not restored, and why."""
    change, workload, found = observation.change, observation.workload, []
    if _has_our_template(observation):
        rejection = observation.rejection(workload.uid, change.template)
        found.append(f"the template keeps {format_sizes(change.after)}: {rejection or change.abandon_reason}")
    elif _is_rolling_back(observation):
        why = "the rollout is paused, resume it" if workload.paused else change.abandon_reason
        found.append(
            f"pods with the new size are left to replace by the rollout to the previous template: {why}"
        )
    if kept := _kept_size(observation):
        found.append(
            f"pods keep {format_sizes(kept)}: they need that much memory, or the cluster cannot lower it in place"
        )
    pods = [
        pod
        for pod in _affected_pods(observation)
        if not has_size(pod, change.previous_size(pod)) and not (kept and has_size(pod, kept))
    ]
    if pods:
        first, others = pods[0], f" and {len(pods) - 1} more" if len(pods) > 1 else ""
        rejection = observation.rejection(first.uid, _revert_size(observation, first))
        why = rejection or change.abandon_reason or "its pods cannot be resized in place"
        sizes = format_sizes(select_sizes(container_sizes(first.containers), change.after))
        found.append(f"pod {first.name}{others} {'keep' if others else 'keeps'} {sizes}: {why}")
    return found


def _build_applied_sizes(observation: Observation, kept: Sizes) -> AppliedSizes:
    """Return the applied sizes that give later pods the size that the others keep."""
    change = observation.change
    return AppliedSizes(
        id=f"{change.id}-kept",
        at=observation.now,
        sizes=dict(kept),
        template=observation.template_sizes,
        before=change.after,
        until=observation.now,
        restarted=last_restart(observation),
        started=heap_limits_at_start(observation),
    )


def _build_revert_record(observation: Observation, *, why: str) -> RevertRecord:
    change, last, now = observation.change, observation.annotations.reverted, observation.now
    is_at_fault = not (change.not_at_fault or change.relief)
    times = (last.times if last else 0) + is_at_fault
    until = now + (compute_cooldown(times) if is_at_fault else DEADLINES.not_at_fault_cooldown)
    relief_until = 0
    if change.relief:
        relief_until = now + (
            DEADLINES.not_at_fault_cooldown if change.not_at_fault else _oom_relief_cooldown(last)
        )
        # The cooldown of an earlier revert goes on unchanged.
        until = max(relief_until, last.until if last else 0)
    return RevertRecord(id=change.id, at=now, why=why, times=times, until=until, relief_until=relief_until)


def _oom_relief_cooldown(last: RevertRecord | None) -> int:
    """Return the seconds until memory that could not be added is tried again: twice the last wait, at most an
    hour.
    """
    rested = last.relief_until - last.at if last and last.relief_until else 0
    return min(DEADLINES.min_cooldown, max(DEADLINES.not_at_fault_cooldown, 2 * rested))
