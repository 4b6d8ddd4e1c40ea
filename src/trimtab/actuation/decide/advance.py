"""Predicates and actions of a change under way that is not being reverted: act on the pods of its phase, wait until
they have settled, observe them, go on or revert.

`transitions` lists them in order. A change for the worse is acted on at once. A good result counts only after the
observation time, and only if nothing is unknown.
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
    Wait,
    WriteAnnotations,
)
from trimtab.actuation.change_annotations import (
    MAX_TEXT_LENGTH,
    AppliedSizes,
    ChangeAnnotations,
    OngoingChange,
    Phase,
    UpdateMethod,
)
from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.decide.conflicts import (
    REPLACING_METHODS,
    assess_change,
    is_rollout_complete,
    is_window_open,
    target_size,
    wait_for_window,
)
from trimtab.actuation.decide.health import find_future_exits
from trimtab.actuation.decide.method import MethodChoice, choose_replacement, list_resizable
from trimtab.actuation.decide.observation import Observation, evaluated_once
from trimtab.actuation.decide.stalls import (
    awaited_pods_without_capacity,
    crash_loop_reason,
    is_crash_looping,
    needs_another_renewal,
    pods_skipped_by_controller,
    pods_to_move,
    stall_reason,
)
from trimtab.actuation.decide.start import MAX_CANARIES, choose_canaries
from trimtab.actuation.resources import (
    Sizes,
    adds_memory,
    container_sizes,
    format_sizes,
    has_increase,
    has_size,
    is_settled,
    merge_sizes,
    select_sizes,
)
from trimtab.actuation.started_limits import memory_limits_at_start
from trimtab.kube.kinds.pods import Pod
from trimtab.plural import pluralize
from trimtab.printable import shorten

# Writing the state of a change


def update_change(observation: Observation, **changes: object) -> WriteAnnotations:
    """Write these fields of the change to the workload."""
    change = msgspec.structs.replace(observation.change, **changes)
    return WriteAnnotations(msgspec.structs.replace(observation.annotations, change=change))


def enter_phase(observation: Observation, **changes: object) -> WriteAnnotations:
    """Enter a phase now, and record the container exits that are known by then."""
    now = observation.now
    ends = find_future_exits(observation.live, now=now)
    return update_change(observation, since=now, settled=0, ends=ends, **changes)


def record_settled(observation: Observation, **changes: object) -> WriteAnnotations:
    """Record that all pods of the phase have their size."""
    change, now = observation.change, observation.now
    # A change that restarts containers counts restarts from here on only.
    ends = find_future_exits(observation.live, now=now) if change.restarts else change.ends
    return update_change(observation, settled=now, ends=ends, **changes)


def start_revert(observation: Observation, why: str, *, not_at_fault: bool = False) -> list[ChangeAction]:
    """Start to revert the change, for this reason."""
    noted = update_change(
        observation,
        phase=Phase.REVERTING,
        since=observation.now,
        settled=0,
        reason=shorten(why, MAX_TEXT_LENGTH),
        not_at_fault=not_at_fault,
    )
    return [
        noted,
        EmitEvent(
            "Warning", "Reverting", f"reverting to {format_sizes(observation.change.before)}, because {why}"
        ),
    ]


def poll(observation: Observation, why: str) -> list[ChangeAction]:
    """Check the pods again in a moment; most changes of theirs come as events before."""
    return [Wait(observation.now + DEADLINES.poll, why)]


def unavailable_reason(observation: Observation) -> str:
    """Return how many pods are missing or not ready; empty if few enough to evict others."""
    return describe_unavailable(observation.unavailable_pods) if observation.unavailable_pods else ""


def describe_unavailable(count: int) -> str:
    """Return the reason to wait for pods that are missing or not ready."""
    return f"{_count_pods(count)} missing or not ready; Trimtab changes more pods once at most a tenth are"


def describe_missing(count: int) -> str:
    """Return the reason to wait for pods that were evicted and not created again."""
    return f"{_count_pods(count)} missing; if they do not return, check the events of its controller"


def _count_pods(count: int) -> str:
    return f"{pluralize(count, 'pod')} of the workload {'is' if count == 1 else 'are'}"


# Pods of the phase


@evaluated_once
def phase_pods(observation: Observation) -> list[Pod]:
    """Return the pods that are to have the new size in this phase."""
    change = observation.change
    if is_replacing_pods(change):
        return list(observation.live)
    pods = list_resizable(observation, observation.live, change.after)
    return [pod for pod in pods if change.phase is not Phase.CANARY or pod.name in change.canaries]


def is_replacing_pods(change: OngoingChange) -> bool:
    """Return whether pods get the size by being recreated; canaries of such a change are resized."""
    return change.method in REPLACING_METHODS and change.phase is not Phase.CANARY


def canary_wait_reason(observation: Observation) -> str:
    """Return why other canaries cannot be chosen yet; empty if they can."""
    if not observation.live:
        return "the workload has no pods now; Trimtab chooses new canaries once it has"
    if observation.change.evicts_pods and (missing := observation.missing_pods):
        return describe_missing(missing)
    return ""


def moved_canaries(observation: Observation) -> tuple[str, ...]:
    """Return the pods that replaced evicted canaries.

    Before another pod is evicted for the same reason, they show whether the first eviction helped.
    """
    change = observation.change
    came = [pod.name for pod in observation.live if change.evicts_pods and pod.created > change.started]
    return tuple(came[:MAX_CANARIES])


def choose_other_canaries(observation: Observation) -> list[ChangeAction]:
    """Choose other canaries after all of them were scaled in or replaced."""
    resizable = list_resizable(observation, observation.live, observation.change.after)
    chosen = choose_canaries(observation, resizable)
    phase = Phase.CANARY if chosen else Phase.PROMOTING
    return [enter_phase(observation, canaries=chosen, phase=phase)]


# Bringing pods to the new size


@evaluated_once
def proceeds_without_pods(observation: Observation) -> bool:
    """Return whether pods without the new size are left to pod sync, because they were tried for long enough."""
    change = observation.change
    if change.phase is Phase.VERIFYING:
        return change.method is UpdateMethod.IN_PLACE and is_overdue(observation)
    return bool(stall_reason(observation)) and is_relieving_others(observation)


@evaluated_once
def is_overdue(observation: Observation) -> bool:
    """Return whether pods that were created after the others were waited for long enough."""
    settled = observation.change.settled
    # Without this limit a workload whose pods come and go all the time would never finish.
    latest = max(settled, observation.local.observed_since) + DEADLINES.late_pods
    return observation.now >= evidence_deadline(observation, min(_unavailable_since(observation), latest))


def _unavailable_since(observation: Observation) -> int:
    """Return the earliest time since which a later pod can have been without its size, or not ready."""
    change = observation.change
    pods = phase_pods(observation)
    came = [pod.created for pod in pods if not (pod.ready and is_settled(pod, change.after))]
    return max(change.settled, min(came, default=0))


def evidence_deadline(observation: Observation, since: int) -> int:
    """Return the deadline after which a change with an unresolved problem is abandoned."""
    canary = observation.strategy.canary
    since = max(since, observation.local.observed_since)
    return since + int(canary.observation.seconds) + int(canary.evidence_timeout.seconds)


@evaluated_once
def is_relieving_others(observation: Observation) -> bool:
    """Return whether some pods already have the memory that they were killed for. Pods without capacity do
    not take it from them.
    """
    change, template = observation.change, observation.template_sizes
    is_written = template == merge_sizes(template, change.after)
    goes_on = change.relief and (is_written or not is_replacing_pods(change))
    return goes_on and any(
        pod.ready and pod.node and _has_memory(pod, change.after) for pod in observation.live
    )


def _has_memory(pod: Pod, sizes: Sizes) -> bool:
    """Return whether a pod has at least this memory in effect."""
    # More than that also counts: an admission webhook may round up what the template asks for.
    sizes_now = container_sizes(pod.containers)
    return is_settled(pod, sizes_now) and not adds_memory(sizes_now, sizes)


@evaluated_once
def template_update(observation: Observation) -> Sizes:
    """Return the sizes that the template is to get; nothing if it has them or stays as it is."""
    change = observation.change
    if not change.patches_template or change.phase is Phase.CANARY:
        return {}
    wanted = merge_sizes(observation.template_sizes, change.after)
    return wanted if wanted != observation.template_sizes else {}


@evaluated_once
def awaits_controller(observation: Observation) -> bool:
    """Return whether the controller has yet to see the template from which it is to recreate evicted pods.

    A pod that is evicted before would be recreated with its old size, and be evicted again.
    """
    change = observation.change
    is_patched = change.patches_template and change.phase is not Phase.CANARY
    return is_patched and change.method is UpdateMethod.RECREATE and not observation.workload.is_spec_observed


@evaluated_once
def pod_work(observation: Observation) -> list[ResizePod] | list[EvictPod]:
    """Return the resizes, or the eviction, that pods of this phase wait for once the template is done."""
    change = observation.change
    priority = Priority.INCREASE if has_increase(change.before, change.after) else Priority.DECREASE
    if change.method is UpdateMethod.IN_PLACE or change.phase is Phase.CANARY:
        behind = [pod for pod in phase_pods(observation) if not has_size(pod, change.after)]
        return [
            ResizePod(pod, target_size(pod, change), priority) for pod in behind if not is_crash_looping(pod)
        ]
    # Only pods from before the change: evicting a new pod that has another size would never end.
    old = [
        pod
        for pod in phase_pods(observation)
        if not change.is_created_by_change(pod) and not is_settled(pod, change.after)
    ]
    if change.method is UpdateMethod.RECREATE:
        # A crash-looping pod serves nobody, so that evicting it makes nothing worse.
        old = [pod for pod in old if is_crash_looping(pod) or not observation.unavailable_pods]
    else:
        old = pods_skipped_by_controller(observation, old)
    return [EvictPod(pod, priority) for pod in old[:1]]


def needs_renewal(observation: Observation) -> bool:
    """Return whether recreated pods must have the new size only from now on."""
    return observation.change.patches_template and needs_another_renewal(observation)


def _has_template_work(observation: Observation) -> bool:
    has_update = bool(template_update(observation))
    return has_update or awaits_controller(observation) or needs_renewal(observation)


@evaluated_once
def has_pending_work(observation: Observation) -> bool:
    """Return whether the template or pods of this phase are still to be changed."""
    if proceeds_without_pods(observation):
        return False
    return _has_template_work(observation) or bool(pod_work(observation))


def is_promotion_outside_window(observation: Observation) -> bool:
    """Return whether pods or the template would be changed now if a window were open."""
    is_promoting = observation.change.phase is Phase.PROMOTING
    return is_promoting and has_pending_work(observation) and not is_window_open(observation)


def work_outside_window(observation: Observation) -> list[ChangeAction]:
    """Return the resizes that wait for no window, as pod sync never does.

    They are of pods created during the change: a replacement of an evicted pod may fit on a node only with
    its new size, and a pod with the template's size would have less than all others until a window opens.
    """
    change = observation.change

    def came_since(pod: Pod) -> bool:
        return pod.created > change.started and (change.evicts_pods or not has_size(pod, change.before))

    work = [] if _has_template_work(observation) else pod_work(observation)
    resizes = [action for action in work if isinstance(action, ResizePod) and came_since(action.pod)]
    return [*resizes, wait_for_window(observation)]


def patch_template(observation: Observation) -> list[ChangeAction]:
    """Write the new sizes to the template."""
    return [PatchTemplate(template_update(observation), observation.strategy.take_ownership)]


# Pods that cannot get the size where they are


@evaluated_once
def replacement(observation: Observation) -> list[ChangeAction]:
    """Switch to replacing pods if the running ones will not get the size and new ones may, on another node or
    from their start.
    """
    if pods_to_move(observation):
        return []  # These pods are evicted once all others are resized.
    full, workload = awaited_pods_without_capacity(observation), observation.workload
    if full and (workload.kind == "DaemonSet" or workload.update_strategy == "Recreate"):
        # The new pods would land on the same node; or all pods would go at once, with no capacity for any to
        # return.
        return []
    why = next(iter(full), "") or crash_loop_reason(observation)
    choice = choose_replacement(observation, why) if why else None
    # Injected containers get their size from whoever injects them when a pod is recreated.
    template, change = observation.template_sizes, observation.change
    after = select_sizes(change.after, template)
    if not isinstance(choice, MethodChoice) or after == select_sizes(change.before, template):
        return []
    noted = enter_phase(
        observation, method=choice.method, after=after, patches_template=True, phase=Phase.PROMOTING
    )
    return [noted, EmitEvent("Normal", "Replacing", f"replacing pods, because {why}")]


def unresolved_stall(observation: Observation) -> str:
    """Return why a change makes no progress, unless pods without capacity are moved or others have their memory."""
    if pods_to_move(observation):
        return ""
    why = stall_reason(observation)
    return "" if why and is_relieving_others(observation) else why


def evict_for_capacity(observation: Observation) -> list[ChangeAction]:
    """Evict one of the pods without capacity and leave the others as they are."""
    why, pod = next(iter(pods_to_move(observation).items()))
    return [
        EvictPod(pod, Priority.INCREASE),
        EmitEvent("Normal", "Replacing", f"evicting pod {pod.name}, because {why}"),
    ]


# Waiting until the size is in effect


@evaluated_once
def unsettled_reason(observation: Observation) -> str:
    """Return which pods do not have the new size in effect; empty when all have."""
    waiting = _describe_unsettled(observation)
    return f"the new size is not in effect yet on {waiting}" if waiting else ""


def _describe_unsettled(observation: Observation) -> str:
    change = observation.change
    if change.method is UpdateMethod.TEMPLATE:
        return ""
    if is_replacing_pods(change) and not is_rollout_complete(observation):
        return "the replaced pods"
    if change.evicts_pods and (missing := observation.missing_pods):
        return f"missing replicas ({missing}); check the events of its controller"
    names = [
        pod.name
        for pod in phase_pods(observation)
        if not is_settled(pod, change.after) or (change.evicts_pods and not pod.node)
    ]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"pod {names[0]}{more}" if names else ""


def is_awaited(observation: Observation) -> bool:
    """Return whether pods without the new size are waited for."""
    return bool(unsettled_reason(observation)) and not proceeds_without_pods(observation)


@evaluated_once
def crashing_pods(observation: Observation) -> list[Pod]:
    """Return the pods that keep the change waiting, if all of them crash before they can be resized.

    Everything else that pods wait for ends by itself or is a stall.
    """
    change = observation.change
    if is_replacing_pods(change):
        return []
    unsettled = [pod for pod in phase_pods(observation) if not is_settled(pod, change.after)]
    crashing = [pod for pod in unsettled if is_crash_looping(pod) and not has_size(pod, change.after)]
    return crashing if crashing == unsettled else []


def crash_wait_reason(observation: Observation) -> str:
    """Return the reason to wait for pods that crash before they can be resized."""
    return f"{unsettled_reason(observation)}, which crashes before it can be resized; see its logs"


def is_crash_overdue(observation: Observation) -> bool:
    """Return whether crashing pods were waited for long enough: the others go on without them."""
    return observation.now >= evidence_deadline(observation, observation.change.since)


# Observing


def observed_until(observation: Observation) -> int:
    """Return the end of the observation of the pods of this phase."""
    return observation.change.settled + int(observation.strategy.canary.observation.seconds)


@evaluated_once
def missing_evidence(observation: Observation) -> str:
    """Return why the health of the pods is not known, or was not observed; empty if it was."""
    return assess_change(observation).unknown or _unobserved_reason(observation)


def _unobserved_reason(observation: Observation) -> str:
    """Return why the observation does not count: all observed pods were replaced meanwhile."""
    since = observation.now - int(observation.strategy.canary.observation.seconds)
    pods = phase_pods(observation)
    if observation.change.method is UpdateMethod.TEMPLATE or any(pod.created <= since for pod in pods):
        return ""
    return (
        "all pods were replaced during the observation; Trimtab waits until one has run with the new size for "
        f"{observation.strategy.canary.observation} (updateStrategy.canary.observation)"
    )


def is_evidence_overdue(observation: Observation) -> bool:
    """Return whether missing evidence was waited for long enough."""
    return observation.now >= evidence_deadline(observation, observation.change.settled)


def wait_for_evidence(observation: Observation) -> list[ChangeAction]:
    """Wait for evidence, until the deadline at the latest."""
    deadline = evidence_deadline(observation, observation.change.settled)
    return [Wait(min(deadline, observation.now + DEADLINES.recheck), missing_evidence(observation))]


def wait_for_observation(observation: Observation) -> list[ChangeAction]:
    """Wait until the observation is over."""
    until = min(observed_until(observation), observation.now + DEADLINES.recheck)
    seconds = observation.strategy.canary.observation
    why = f"observing pods with the new size for {seconds} (updateStrategy.canary.observation)"
    return [Wait(until, why)]


def record_applied(observation: Observation) -> list[ChangeAction]:
    """Record the new size as the one in effect; the change is done."""
    change = observation.change
    written = merge_sizes(change.template, change.after)
    applied = AppliedSizes(
        id=change.id,
        at=observation.now,
        sizes=change.after,
        template=written if change.patches_template else change.template,
        before=change.before,
        until=change.settled,
        restarted=last_restart(observation),
        started=heap_limits_at_start(observation),
    )
    return [
        WriteAnnotations(ChangeAnnotations(applied=applied)),
        EmitEvent(
            "Normal",
            "Resized",
            f"resized from {format_sizes(change.before)} to {format_sizes(change.after)}; the change is complete",
        ),
    ]


def last_restart(observation: Observation) -> int:
    """Return when a change last restarted pods, this one included."""
    change, applied = observation.change, observation.annotations.applied
    if change.method in REPLACING_METHODS or change.restarts:
        return change.started
    return applied.restarted if applied else 0


def heap_limits_at_start(observation: Observation) -> dict[str, int]:
    """Return the memory limits that processes started with, for containers whose heap may be a share of the
    limit.
    """
    workload = observation.workload
    limits = memory_limits_at_start(workload, observation.live, observation.annotations).largest
    return {
        hint.container: limits[hint.container] for hint in workload.heap_flags if hint.container in limits
    }
