"""What speaks against a change that is under way: others were there first, it is refused, or it hurts.

Left out: what is waited for in vain (`stuck`), what is done about all that (`progress`), what counts as worse (`verdict`).
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
"""Seconds for which a workload may have no pods while it is changed, as where a quota keeps them from coming back."""
REPLACING_METHODS = frozenset({UpdateMethod.ROLLOUT, UpdateMethod.RECREATE})
"""The ways by which pods come anew."""


def superseded_reason(situation: ChangeContext, change: OngoingChange) -> str:
    """Whether somebody else changed the workload under us; what we saw of it so far then says nothing any more."""
    workload = situation.workload
    if _is_template_reset(situation, change):
        return ""  # that is no change of somebody's own, and would be made again and again
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
    """The server's own words, where it said no to this change."""
    if not situation.observations.rejections:
        return template_rejection_reason(situation, change)
    words = [situation.rejection(pod.uid, target_size(pod, change)) for pod in situation.live]
    return next(filter(None, words), "") or template_rejection_reason(situation, change)


def _is_template_reset(situation: ChangeContext, change: OngoingChange) -> bool:
    """Whether the template had our sizes and has those of before: whoever keeps it so will do that again."""
    is_before = situation.template_sizes == change.template != merge_sizes(change.template, change.after)
    return change.patches_template and is_before and situation.observations.patched_change == change.id


def was_template_reset(situation: ChangeContext, applied: AppliedSizes) -> bool:
    """The same of a change that is done: a rollout for us and one for them would follow each other for ever."""
    now = situation.template_sizes
    was, ours = merge_sizes(now, applied.before), merge_sizes(now, applied.sizes)
    return bool(applied.before) and now == was != ours == applied.template


def template_rejection_reason(situation: ChangeContext, change: OngoingChange) -> str:
    """The same of the template alone."""
    if not change.patches_template:
        return ""
    if _is_template_reset(situation, change):
        return TEMPLATE_RESET
    return situation.rejection(situation.workload.uid, merge_sizes(situation.template_sizes, change.after))


def is_window_open(situation: ChangeContext, change: OngoingChange) -> bool:
    """Whether a change may go on at this time of the week; more memory after a kill always may."""
    now = situation.now
    return change.relief or next_opening(situation.strategy.windows, now=now) == now


def must_yield_to_oom_relief(situation: ChangeContext, change: OngoingChange) -> bool:
    """Whether pods are killed for lack of memory while a change that brings none is watched on a few, or waits for a window."""
    if (
        change.relief
        or not situation.is_oom_relief_due
        or not adds_memory(change.after, situation.desired.sizes)
    ):
        return False
    waits = change.phase is Phase.PROMOTING and not is_window_open(situation, change)
    return change.phase is Phase.CANARY or waits


def is_crash_looping(pod: Pod) -> bool:
    """Whether a container waits to be started again, which a kubelet is slow to say: for most of the pause it tells how
    it ended. A resize meanwhile would never reach the cgroup of the pod itself (seen with Kubernetes 1.36), and more
    memory would be of no use; once it runs, it does.
    """
    return any(
        state.waiting_reason == "CrashLoopBackOff"
        or (state.is_terminated and state.last_termination and state.last_termination.exit_code)
        for state in pod.container_statuses
    )


def pods_skipped_by_controller(situation: ChangeContext, pods: Sequence[Pod]) -> list[Pod]:
    """Those of a StatefulSet's pods that its controller will not replace, though its template has changed: it waits for each
    to be ready first, and one that falls or finds no node never is (seen with Kubernetes 1.36).
    """
    if situation.workload.kind != "StatefulSet" or not situation.workload.is_spec_observed:
        return []
    return [pod for pod in pods if not pod.ready]


def assess_change(situation: ChangeContext, change: OngoingChange) -> HealthComparison:
    """How the pods that were changed fare, against how they did before.

    Nothing speaks against more memory for pods that were killed for lack of it: what still fails, fails by what was, and
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
        # What our own resize restarts is no harm; once all have settled, every restart is. Ends are told by the second,
        # and a container that is quick ends, starts and has settled within one.
        since=change.settled + 1 if change.restarts and change.settled else change.since,
        now=situation.now,
        window=_observation_seconds(situation),
        signals=evidence,
        known=change.ends,
        count_restarts=not change.restarts or bool(change.settled),
    )
    if changed and not any(each.resources.cpu_limit for pod in changed for each in pod.containers):
        # Of those without a limit nobody tells, for they never are.
        now = msgspec.structs.replace(now, throttled=0.0)
    seen = situation.observations.unready_since
    unready = [
        situation.now - seen.get(pod.uid, situation.now)
        for pod in changed
        if not pod.ready and _should_be_ready(situation, change, pod)
    ]
    return compare_health(change.health, now, evidence, unready=unready)


def _should_be_ready(situation: ChangeContext, change: OngoingChange, pod: Pod) -> bool:
    """Whether a pod was there before the change, came by it and has been ready since, or has had the time to start.

    One that an autoscaler has just added says nothing of the change.
    """
    was_ready = change.phase is Phase.VERIFYING and change.since <= pod.created < change.settled
    came_by_it = change.way in REPLACING_METHODS and was_ready
    had_time = situation.now - pod.created >= max(STARTUP_GRACE, _observation_seconds(situation))
    return pod.created <= change.started or came_by_it or had_time


def _observation_seconds(situation: ChangeContext) -> int:
    return int(situation.strategy.canary.observation.seconds)


def target_size(pod: Pod, change: OngoingChange) -> Sizes:
    """What a pod is to have after a change."""
    return {each.name: change.after[each.name] for each in pod.containers if each.name in change.after}


def is_rollout_complete(situation: ChangeContext) -> bool:
    """Whether its controller has replaced all pods that it is to replace, and they are well."""
    return (
        situation.workload.is_spec_observed
        and not situation.workload.is_rolling_out
        and not situation.unavailable_pods
    )
