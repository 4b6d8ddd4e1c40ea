"""Find changes that make no progress: a full node, a runtime error, a crash-looping pod, a controller that does not finish.

It also lists the pods that should be recreated on another node. `transitions` decides on the reaction. Where this works
around the behaviour of Kubernetes, the function names the version in which it was seen and the upstream issue, so that it
can go once the oldest supported Kubernetes no longer behaves so.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.actuation.change_annotations import Phase, UpdateMethod
from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.decide.conflicts import REPLACING_METHODS, is_rollout_complete, is_window_open
from trimtab.actuation.decide.maintenance_windows import last_opening, open_seconds
from trimtab.actuation.decide.method import list_resizable
from trimtab.actuation.decide.observation import Observation, evaluated_once
from trimtab.actuation.resources import has_increase, has_size, increases_requests, is_settled, merge_sizes
from trimtab.api.optimizationpolicy import MaintenanceWindow
from trimtab.kube.kinds.pods import Pod


def is_crash_looping(pod: Pod) -> bool:
    """Return whether a container waits to be restarted.

    A resize meanwhile does not end the back-off (kubernetes/kubernetes#119838) and never reaches the cgroup of the
    pod (seen with Kubernetes 1.36), so more memory would not help. Once the container runs, both work.
    """
    return any(
        state.waiting_reason == "CrashLoopBackOff"
        # A kubelet reports the back-off late: for most of it the container state is still the last exit. Without
        # this, the resize would be sent in exactly the moments in which it has no effect.
        or (state.is_terminated and state.last_termination and state.last_termination.exit_code)
        for state in pod.container_statuses
    )


def pods_skipped_by_controller(observation: Observation, pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods of a StatefulSet that its controller will not replace although the template has
    changed.

    It waits for each pod to be ready first, which a pod that crashes or finds no node never is: somebody has to
    delete the pod (kubernetes/kubernetes#67250, seen with Kubernetes 1.36).
    """
    workload = observation.workload
    # An unready pod may still be replaced until the controller has seen the template: evicting it before that would
    # recreate it from the old one.
    if workload.kind != "StatefulSet" or not workload.is_spec_observed:
        return []
    return [pod for pod in pods if not pod.ready]


@evaluated_once
def stall_reason(observation: Observation) -> str:
    """Return why a pod cannot get its new size in a reasonable time; empty if it can."""
    awaited = _awaited_pods(observation)
    for pod in awaited:
        if _waiting_seconds(observation, pod) > DEADLINES.progress:
            return f"pod {pod.name} did not get the new size within an hour"
    return (
        runtime_error(observation, awaited)
        or next(iter(awaited_pods_without_capacity(observation)), "")
        or _controller_stall_reason(observation)
        or _never_resized_reason(observation)
    )


def runtime_error(observation: Observation, pods: Sequence[Pod]) -> str:
    """Return the error of a container runtime that rejects the size of one of these pods; empty if none does
    for long.
    """
    for pod in pods:
        if (
            pod.resize
            and pod.resize.reason == "Error"
            # Kubelets repeat a failed resize, and a runtime that restarts fails for a while.
            and _waiting_seconds(observation, pod) > DEADLINES.deferred
        ):
            return f"pod {pod.name} was not resized: the container runtime rejected it: {pod.resize.message}"
    return ""


@evaluated_once
def awaited_pods_without_capacity(observation: Observation) -> dict[str, Pod]:
    """Return the pods whose node has no capacity for their new size, never or not soon, by the message to
    report.
    """
    return pods_without_capacity(observation, _awaited_pods(observation))


def pods_without_capacity(observation: Observation, pods: Sequence[Pod]) -> dict[str, Pod]:
    """Return the pods of these whose node has no capacity for the size that they wait for, by the message to
    report.
    """
    found: dict[str, Pod] = {}
    for pod in pods:
        if pod.resize and pod.resize.reason == "Infeasible":
            found[f"pod {pod.name} cannot be resized on its node: {pod.resize.message}"] = pod
        if (
            pod.resize
            and pod.resize.reason == "Deferred"
            # The kubelet resizes the pod by itself once another pod leaves the node.
            and _waiting_seconds(observation, pod) > DEADLINES.deferred
        ):
            found[f"the node of pod {pod.name} has no capacity to resize it: {pod.resize.message}"] = pod
    return found


@evaluated_once
def pods_to_move(observation: Observation) -> dict[str, Pod]:
    """Return the pods without capacity that are recreated elsewhere, by the message to report.

    They return with the size of their template and injected containers, so that must be enough. Each is moved
    only once, because it is resized on its new node. A Job's pod would lose its work, and a DaemonSet's would
    return to the same node.
    """
    workload, change = observation.workload, observation.change
    created_with = change.before | observation.template_sizes
    is_enough = not increases_requests(created_with, change.after)
    if change.method is not UpdateMethod.IN_PLACE or not (is_enough and observation.may_recreate):
        return {}
    if workload.kind == "DaemonSet" or not workload.is_long_running:
        return {}
    full = awaited_pods_without_capacity(observation)
    return {why: pod for why, pod in full.items() if pod.created <= change.started}


@evaluated_once
def eviction_failure(observation: Observation) -> str:
    """Return why an eviction for capacity failed: the pod did not return or found no node, or no eviction was
    allowed.
    """
    change = observation.change
    if not change.evicts_pods or change.phase is Phase.VERIFYING or change.method in REPLACING_METHODS:
        return ""
    if unplaced := _find_unscheduled_pod(observation):
        return f"no node has capacity for pod {unplaced} with its new size"
    missing = observation.missing_pods
    gone = f"evicted pods were not created again ({missing} missing)" if missing else ""
    why = gone or next(iter(awaited_pods_without_capacity(observation)), "")
    return why if _is_late(observation) else ""


@evaluated_once
def crash_loop_reason(observation: Observation) -> str:
    """Return which pod has crashed for too long to be resized; empty if none has."""
    change = observation.change
    is_promoted = change.method is UpdateMethod.IN_PLACE and change.phase is Phase.PROMOTING
    if not is_promoted or observation.now - change.since < DEADLINES.crash_loop:
        return ""
    pods = list_resizable(observation, observation.live, change.after)
    behind = [pod for pod in pods if not has_size(pod, change.after)]
    return next(
        (f"pod {pod.name} crashes before it can be resized" for pod in behind if is_crash_looping(pod)), ""
    )


@evaluated_once
def needs_another_renewal(observation: Observation) -> bool:
    """Return whether a pod that was created during evictions has another size, for the first time.

    It may be from the template before, for example because somebody scaled out just then.
    """
    change = observation.change
    if change.method is not UpdateMethod.RECREATE or change.phase is not Phase.PROMOTING or change.renewed_at:
        return False
    return any(
        change.is_created_by_change(pod) and not has_size(pod, change.after) for pod in observation.live
    )


def _awaited_pods(observation: Observation) -> list[Pod]:
    """Return the pods that were resized and have not settled yet.

    Return none once all had settled: later pods do not count against the change, and are waited for
    elsewhere.
    """
    change = observation.change
    if change.phase is Phase.VERIFYING or (
        change.method in REPLACING_METHODS and change.phase is Phase.PROMOTING
    ):
        return []
    return [
        pod for pod in observation.live if has_size(pod, change.after) and not is_settled(pod, change.after)
    ]


def _waiting_seconds(observation: Observation, pod: Pod) -> int:
    return observation.now - observation.local.unsettled_since.get(pod.uid, observation.now)


def _controller_stall_reason(observation: Observation) -> str:
    """Return why replaced pods do not appear, or appear with another size; empty if neither."""
    change = observation.change
    if change.method not in REPLACING_METHODS or change.phase is not Phase.PROMOTING:
        return ""
    behind = [pod for pod in observation.live if not has_size(pod, change.after)]
    is_written = observation.template_sizes == merge_sizes(observation.template_sizes, change.after)
    if is_written and not behind and is_rollout_complete(observation):
        return ""  # The rollout may have completed hours before this check.
    if unplaced := _find_unscheduled_pod(observation):
        return f"no node has capacity for pod {unplaced} with its new size"
    if _is_late(observation):
        return "the controller did not replace the pods in time; check its rollout and events"
    all_came = is_rollout_complete(observation) and behind and all(map(change.is_created_by_change, behind))
    if all_came and not needs_another_renewal(observation):
        return f"new pod {behind[0].name} has another size than the template: an admission webhook or controller sets it"
    return ""


@evaluated_once
def _find_unscheduled_pod(observation: Observation) -> str:
    """Return a pod that has become too large for every node and has waited for one for too long."""
    change, long_ago = observation.change, observation.now - DEADLINES.unscheduled
    if observation.local.observed_since > long_ago or not has_increase(change.before, change.after):
        return ""
    waiting = (pod for pod in observation.live if not pod.node and pod.created < long_ago)
    return next((pod.name for pod in waiting if has_size(pod, change.after)), "")


@evaluated_once
def _is_late(observation: Observation) -> bool:
    """Return whether a change that replaces pods has made no progress for too long, although it could."""
    change, now, windows = observation.change, observation.now, _required_windows(observation)
    came = [pod.created for pod in observation.live if pod.ready and has_size(pod, change.after)]
    went_on = max([observation.phase_began, *came])
    # A controller also goes on while no window is open; and if windows open every hour, none is long enough
    # alone.
    waited = now - max(went_on, last_opening(windows, now=now))
    is_long = max(waited, open_seconds(windows, since=went_on, now=now)) > DEADLINES.progress
    # Pods that an autoscaler keeps adding are no sign that the others will be replaced.
    is_longest = not windows and now - observation.phase_began > DEADLINES.max_duration
    return (is_long or is_longest) and not _is_waiting_for_window(observation)


def _required_windows(observation: Observation) -> Sequence[MaintenanceWindow]:
    """Return the windows that a change waits for; more memory after an OOM kill waits for none."""
    return () if observation.change.relief else observation.strategy.windows


def _never_resized_reason(observation: Observation) -> str:
    """Return which pod or template never got its size although it could: the server fails each time without
    rejecting it.
    """
    change = observation.change
    if change.phase is Phase.VERIFYING or (
        change.method in REPLACING_METHODS and change.phase is Phase.PROMOTING
    ):
        return ""
    windows, began = _required_windows(observation), observation.phase_began
    is_long = open_seconds(windows, since=began, now=observation.now) > DEADLINES.never_resized
    if not is_long and observation.now - began <= DEADLINES.max_duration:
        return ""
    if change.method is UpdateMethod.TEMPLATE:
        is_written = observation.template_sizes == merge_sizes(observation.template_sizes, change.after)
        return "" if is_written else "the template could not be changed: the API server failed every time"
    pods = list_resizable(observation, observation.live, change.after)
    if change.phase is Phase.CANARY:
        pods = [pod for pod in pods if pod.name in change.canaries]
    behind = [pod for pod in pods if not has_size(pod, change.after) and not is_crash_looping(pod)]
    return f"pod {behind[0].name} could not be resized: the API server failed every time" if behind else ""


def _is_waiting_for_window(observation: Observation) -> bool:
    """Return whether a change waits only for a window, and the pods that it replaced are ready.

    A controller that replaces pods by itself waits for no window.
    """
    workload, change = observation.workload, observation.change
    is_incomplete = len(observation.live) < workload.replicas
    if is_window_open(observation) or workload.is_rolling_out or is_incomplete:
        return False
    return all(pod.ready for pod in observation.live if has_size(pod, change.after))
