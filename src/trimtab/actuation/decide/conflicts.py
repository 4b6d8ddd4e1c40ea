"""Find what speaks against a change under way: it is superseded, rejected or harmful.

`stalls` finds changes that make no progress, `advance` decides on the reaction, and `health` compares pods.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trimtab.actuation.change_annotations import AppliedSizes, OngoingChange, Phase, UpdateMethod
from trimtab.actuation.decide.context import ChangeContext
from trimtab.actuation.decide.health import STARTUP_GRACE, HealthComparison, compare_health, health_since
from trimtab.actuation.decide.maintenance_windows import next_opening
from trimtab.actuation.resources import Sizes, adds_memory, has_size, merge_sizes
from trimtab.kube.kinds.pods import Pod

TEMPLATE_RESET = (
    "its template was set back to the sizes of before: something keeps it so, such as a GitOps tool; "
    "change them there, or set updateStrategy.template to Never"
)
NO_WINDOW_OPENS = "no maintenance window ever opens: check the time zones in updateStrategy.windows"
NO_PODS_TIMEOUT = 3600
"""Seconds that a workload may be without pods during a change, for example because a quota blocks them."""
REPLACING_METHODS = frozenset({UpdateMethod.ROLLOUT, UpdateMethod.RECREATE})
"""The methods that recreate pods."""


def superseded_reason(situation: ChangeContext, change: OngoingChange) -> str:
    """Return why a change is obsolete because somebody else changed the workload; empty if it is not."""
    workload = situation.workload
    if _is_template_reset(situation, change):
        # A template that is reset is not an edit of its owner: the reset would be repeated again and again.
        return ""
    is_gone = workload.replicas == 0 or workload.kind == "Job"
    waited = situation.now - max(change.since, situation.observations.observed_since)
    is_lost = waited > NO_PODS_TIMEOUT and change.way is not UpdateMethod.TEMPLATE
    if not situation.live and (is_gone or is_lost):
        return "it has no pods any more"
    is_waiting = change.phase in {Phase.CANARY, Phase.PROMOTING} and not change.relief
    if is_waiting and next_opening(situation.strategy.windows, now=situation.now) is None:
        return NO_WINDOW_OPENS
    ours = merge_sizes(change.template, change.after) if change.patches_template else change.template
    if situation.template_sizes not in (change.template, ours):
        return "the sizes in its template were changed meanwhile"
    by_us = change.way is UpdateMethod.ROLLOUT and situation.template_sizes == ours
    in_its_way = not (
        change.relief and change.way is UpdateMethod.IN_PLACE
    )  # pods are given more wherever they come from
    if workload.is_rolling_out and not by_us and in_its_way:
        return "a rollout began meanwhile"
    return ""


def rejection_reason(situation: ChangeContext, change: OngoingChange) -> str:
    """Return the server's message if it rejected this change."""
    if not situation.observations.rejections:
        return template_rejection_reason(situation, change)
    words = [situation.rejection(pod.uid, target_size(pod, change)) for pod in situation.live]
    return next(filter(None, words), "") or template_rejection_reason(situation, change)


def _is_template_reset(situation: ChangeContext, change: OngoingChange) -> bool:
    """Return whether the template had our sizes and has the old ones again: whoever reset it will do so
    again.
    """
    is_before = situation.template_sizes == change.template != merge_sizes(change.template, change.after)
    return change.patches_template and is_before and situation.observations.patched_change == change.id


def was_template_reset(situation: ChangeContext, applied: AppliedSizes) -> bool:
    """Return whether the template was reset after a finished change: rollouts of both sides would alternate
    forever.
    """
    now = situation.template_sizes
    was, ours = merge_sizes(now, applied.before), merge_sizes(now, applied.sizes)
    return bool(applied.before) and now == was != ours == applied.template


def template_rejection_reason(situation: ChangeContext, change: OngoingChange) -> str:
    """Return the server's message if it rejected the template, or why the template cannot be changed."""
    if not change.patches_template:
        return ""
    if _is_template_reset(situation, change):
        return TEMPLATE_RESET
    return situation.rejection(situation.workload.uid, merge_sizes(situation.template_sizes, change.after))


def is_window_open(situation: ChangeContext, change: OngoingChange) -> bool:
    """Return whether a change may go on now. More memory after an OOM kill waits for no window."""
    now = situation.now
    return change.relief or next_opening(situation.strategy.windows, now=now) == now


def must_yield_to_oom_relief(situation: ChangeContext, change: OngoingChange) -> bool:
    """Return whether pods are OOM killed while a change that adds no memory is a canary or waits for a
    window.
    """
    if (
        change.relief
        or not situation.is_oom_relief_due
        or not adds_memory(change.after, situation.desired.sizes)
    ):
        return False
    waits = change.phase is Phase.PROMOTING and not is_window_open(situation, change)
    return change.phase is Phase.CANARY or waits


def is_crash_looping(pod: Pod) -> bool:
    """Return whether a container waits to be restarted.

    A kubelet reports the back-off late: for most of it the container state is the last exit. A resize
    meanwhile would never reach the cgroup of the pod (seen with Kubernetes 1.36), and more memory would not
    help; once the container runs, both work.
    """
    return any(
        state.waiting_reason == "CrashLoopBackOff"
        or (state.is_terminated and state.last_termination and state.last_termination.exit_code)
        for state in pod.container_statuses
    )


def pods_skipped_by_controller(situation: ChangeContext, pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods of a StatefulSet that its controller will not replace although the template has
    changed.

    It waits for each pod to be ready first, which a pod that crashes or finds no node never is (seen with
    Kubernetes 1.36).
    """
    if situation.workload.kind != "StatefulSet" or not situation.workload.is_spec_observed:
        return []
    return [pod for pod in pods if not pod.ready]


def assess_change(situation: ChangeContext, change: OngoingChange) -> HealthComparison:
    """Compare the health of the changed pods with that before the change.

    More memory after an OOM kill is never judged harmful: remaining failures are those from before, and
    guardrails may be broken by the kills.
    """
    if change.relief:
        return HealthComparison()
    evidence = situation.desired.harm_signals
    changed = [pod for pod in situation.live if has_size(pod, change.after)]
    if change.phase is Phase.CANARY:
        changed = [pod for pod in changed if pod.name in change.canaries]
    now = health_since(
        changed,
        # Restarts by our own resize are no harm; once all pods have settled, every restart is. Exit times
        # have a resolution of one second, in which a quick container exits, starts and settles.
        since=change.settled + 1 if change.restarts and change.settled else change.since,
        now=situation.now,
        window=_observation_seconds(situation),
        signals=evidence,
        known=change.ends,
        count_restarts=not change.restarts or bool(change.settled),
    )
    if changed and not any(each.resources.cpu_limit for pod in changed for each in pod.containers):
        # Containers without a CPU limit are never throttled, and no metric reports them.
        now = msgspec.structs.replace(now, throttled=0.0)
    seen = situation.observations.unready_since
    unready = [
        situation.now - seen.get(pod.uid, situation.now)
        for pod in changed
        if not pod.ready and _should_be_ready(situation, change, pod)
    ]
    return compare_health(change.health, now, evidence, unready=unready)


def _should_be_ready(situation: ChangeContext, change: OngoingChange, pod: Pod) -> bool:
    """Return whether a pod should be ready: it existed before the change, came with it and was ready
    since, or had time to start.

    A pod that an autoscaler just added does not count against the change.
    """
    was_ready = change.phase is Phase.VERIFYING and change.since <= pod.created < change.settled
    came_by_it = change.way in REPLACING_METHODS and was_ready
    had_time = situation.now - pod.created >= max(STARTUP_GRACE, _observation_seconds(situation))
    return pod.created <= change.started or came_by_it or had_time


def _observation_seconds(situation: ChangeContext) -> int:
    return int(situation.strategy.canary.observation.seconds)


def target_size(pod: Pod, change: OngoingChange) -> Sizes:
    """Return the size that a pod is to have after a change."""
    return {each.name: change.after[each.name] for each in pod.containers if each.name in change.after}


def is_rollout_complete(situation: ChangeContext) -> bool:
    """Return whether the controller has replaced all pods that it is to replace, and they are available."""
    return (
        situation.workload.is_spec_observed
        and not situation.workload.is_rolling_out
        and not situation.unavailable_pods
    )
