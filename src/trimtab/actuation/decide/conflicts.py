"""Find what speaks against a change under way: it is superseded, rejected or harmful.

`stalls` finds changes that make no progress, `transitions` decides on the reaction, and `health` compares pods.
"""

from __future__ import annotations

import msgspec

from trimtab.actuation.actions import Wait
from trimtab.actuation.change_annotations import AppliedSizes, OngoingChange, Phase, UpdateMethod
from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.decide.health import HealthComparison, compare_health, health_since
from trimtab.actuation.decide.maintenance_windows import next_opening
from trimtab.actuation.decide.observation import Observation, evaluated_once
from trimtab.actuation.resources import Sizes, adds_memory, has_size, merge_sizes, raise_sizes
from trimtab.api.fields import format_time
from trimtab.kube.kinds.pods import Pod

TEMPLATE_RESET = (
    "the sizes in the workload's template were set back to the previous ones, by something such as a GitOps tool; "
    "change them in its source, or set updateStrategy.template to Never"
)
NO_WINDOW_OPENS = "no maintenance window ever opens: check the time zones in updateStrategy.windows"
LIMITS_EXCEEDED = (
    "the change exceeds the limits of the operator that apply now (limits.*, or intents.* where an Intent controls the "
    "workload); a change within them follows"
)
REPLACING_METHODS = frozenset({UpdateMethod.ROLLOUT, UpdateMethod.RECREATE})
"""The methods that recreate pods."""


@evaluated_once
def superseded_reason(observation: Observation) -> str:
    """Return why a change is obsolete because somebody else changed the workload; empty if it is not."""
    workload, change = observation.workload, observation.change
    if _is_template_reset(observation):
        # A template that is reset is not an edit of its owner. Reverted without a fault, the change would be tried
        # again in minutes, and both sides would roll all pods again and again.
        return ""
    is_gone = workload.replicas == 0 or workload.kind == "Job"
    is_lost = observation.now - observation.phase_began > DEADLINES.no_pods
    if not observation.live and (is_gone or (is_lost and change.method is not UpdateMethod.TEMPLATE)):
        return "the workload has no pods any more, so that the change cannot be verified"
    is_waiting = change.phase in {Phase.CANARY, Phase.PROMOTING} and not change.relief
    if is_waiting and next_opening(observation.strategy.windows, now=observation.now) is None:
        return NO_WINDOW_OPENS
    ours = merge_sizes(change.template, change.after) if change.patches_template else change.template
    if observation.template_sizes not in (change.template, ours):
        return "somebody changed the sizes in the workload's template during the change"
    is_our_rollout = change.method is UpdateMethod.ROLLOUT and observation.template_sizes == ours
    # Pods that are OOM killed get more memory whatever revision they are of.
    tolerates_rollout = change.relief and change.method is UpdateMethod.IN_PLACE
    if workload.is_rolling_out and not is_our_rollout and not tolerates_rollout:
        return "somebody started a rollout of the workload during the change"
    return ""


@evaluated_once
def exceeds_limits(observation: Observation) -> bool:
    """Return whether the change gives pods more than the limits that apply now: lowered ones, or those of a new owner."""
    change = observation.change
    own = raise_sizes(observation.template_sizes, change.before)
    return observation.desired.size_limits.clamp(change.after, template=own) != change.after


@evaluated_once
def rejection_reason(observation: Observation) -> str:
    """Return the server's message if it rejected this change."""
    words = (observation.rejection(pod.uid, target_size(pod, observation.change)) for pod in observation.live)
    return next(filter(None, words), "") or template_rejection_reason(observation)


def _is_template_reset(observation: Observation) -> bool:
    """Return whether the template had our sizes and has the old ones again: whoever reset it will do so
    again.
    """
    change = observation.change
    is_before = observation.template_sizes == change.template != merge_sizes(change.template, change.after)
    return change.patches_template and is_before and observation.local.patched_change == change.id


def was_template_reset(observation: Observation, applied: AppliedSizes) -> bool:
    """Return whether the template was reset after a finished change: rollouts of both sides would alternate
    forever.
    """
    now = observation.template_sizes
    was, ours = merge_sizes(now, applied.before), merge_sizes(now, applied.sizes)
    return bool(applied.before) and now == was != ours == applied.template


@evaluated_once
def template_rejection_reason(observation: Observation) -> str:
    """Return the server's message if it rejected the template, or why the template cannot be changed."""
    if not observation.change.patches_template:
        return ""
    if _is_template_reset(observation):
        return TEMPLATE_RESET
    wanted = merge_sizes(observation.template_sizes, observation.change.after)
    return observation.rejection(observation.workload.uid, wanted)


@evaluated_once
def is_window_open(observation: Observation) -> bool:
    """Return whether a change may go on now. More memory after an OOM kill waits for no window."""
    now = observation.now
    return observation.change.relief or next_opening(observation.strategy.windows, now=now) == now


def wait_for_window(observation: Observation) -> Wait:
    """Return the wait for the next maintenance window."""
    opening = next_opening(observation.strategy.windows, now=observation.now)
    return Wait(opening or observation.now + DEADLINES.recheck, describe_closed_windows(opening))


def describe_closed_windows(opening: int | None) -> str:
    """Return the reason to wait for a maintenance window, and when the next one opens."""
    opens = f"; the next one opens at {format_time(opening)}" if opening else ""
    return f"no maintenance window (updateStrategy.windows) is open{opens}"


@evaluated_once
def must_yield_to_oom_relief(observation: Observation) -> bool:
    """Return whether pods are OOM killed while a change that adds no memory is a canary or waits for a
    window.
    """
    change = observation.change
    adds = adds_memory(change.after, observation.desired.sizes)
    if change.relief or not observation.is_oom_relief_due or not adds:
        return False
    # A change that goes on by itself takes minutes: to revert it in the middle of a rollout would take longer.
    waits = change.phase is Phase.PROMOTING and not is_window_open(observation)
    return change.phase is Phase.CANARY or waits


@evaluated_once
def assess_change(observation: Observation) -> HealthComparison:
    """Compare the health of the changed pods with that before the change.

    More memory after an OOM kill is never judged harmful: remaining failures are those from before, and
    guardrails may be broken by the kills.
    """
    change, signals = observation.change, observation.desired.harm_signals
    if change.relief:
        return HealthComparison()
    changed = [pod for pod in observation.live if has_size(pod, change.after)]
    if change.phase is Phase.CANARY:
        changed = [pod for pod in changed if pod.name in change.canaries]
    now = health_since(
        changed,
        # Restarts by our own resize are no harm; once all pods have settled, every restart is. Exit times
        # have a resolution of one second, in which a quick container exits, starts and settles.
        since=change.settled + 1 if change.restarts and change.settled else change.since,
        now=observation.now,
        window=_observation_seconds(observation),
        signals=signals,
        known=change.ends,
        count_restarts=not change.restarts or bool(change.settled),
    )
    if changed and not any(each.resources.cpu_limit for pod in changed for each in pod.containers):
        # Containers without a CPU limit are never throttled, and no metric reports them. Unknown throttling would
        # let their changes wait for evidence that never comes.
        now = msgspec.structs.replace(now, throttled=0.0)
    elif changed and not any(lowers_cpu(change, pod) for pod in changed):
        # More load throttles containers, too. Blamed for that, a change of memory alone would be reverted whenever the
        # load rises, and so would one that gives throttled containers more CPU.
        now = msgspec.structs.replace(now, throttled=change.health.throttled)
    unready_since = observation.local.unready_since
    unready = [
        observation.now - unready_since.get(pod.uid, observation.now)
        for pod in changed
        if not pod.ready and _should_be_ready(observation, change, pod)
    ]
    return compare_health(change.health, now, signals, unready=unready)


def lowers_cpu(change: OngoingChange, pod: Pod) -> bool:
    """Return whether the change gives a container of the pod less CPU than before, by request or limit."""
    before = change.previous_size(pod)
    return any(
        now is not None and (old is None or now < old)
        for name in before.keys() & change.after.keys()
        for old, now in (
            (before[name].cpu_request or 0, change.after[name].cpu_request or 0),
            (before[name].cpu_limit, change.after[name].cpu_limit),
        )
    )


def _should_be_ready(observation: Observation, change: OngoingChange, pod: Pod) -> bool:
    """Return whether a pod should be ready: it existed before the change, came with it and was ready
    since, or had time to start.

    A pod that an autoscaler just added does not count against the change.
    """
    was_ready = change.phase is Phase.VERIFYING and change.since <= pod.created < change.settled
    came_by_it = change.method in REPLACING_METHODS and was_ready
    had_time = observation.now - pod.created >= max(DEADLINES.startup, _observation_seconds(observation))
    return pod.created <= change.started or came_by_it or had_time


def _observation_seconds(observation: Observation) -> int:
    return int(observation.strategy.canary.observation.seconds)


def target_size(pod: Pod, change: OngoingChange) -> Sizes:
    """Return the size that a pod is to have after a change."""
    return {each.name: change.after[each.name] for each in pod.containers if each.name in change.after}


def is_rollout_complete(observation: Observation) -> bool:
    """Return whether the controller has replaced all pods that it is to replace, and they are available."""
    workload = observation.workload
    # Until the controller has seen the template, its status is that of the last rollout, which is complete.
    return workload.is_spec_observed and not workload.is_rolling_out and not observation.unavailable_pods
