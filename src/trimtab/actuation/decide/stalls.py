"""Find changes that make no progress: a full node, a runtime error, a crash-looping pod, a controller that
does not finish.

It also lists the pods that should be recreated on another node. `advance` decides on the reaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.actuation.change_annotations import OngoingChange, Phase, UpdateMethod
from trimtab.actuation.decide.conflicts import (
    REPLACING_METHODS,
    is_crash_looping,
    is_rollout_complete,
    is_window_open,
)
from trimtab.actuation.decide.context import ChangeContext
from trimtab.actuation.decide.maintenance_windows import last_opening, open_seconds
from trimtab.actuation.decide.method import list_resizable
from trimtab.actuation.resources import has_increase, has_size, increases_requests, is_settled, merge_sizes
from trimtab.api.optimizationpolicy import MaintenanceWindow
from trimtab.kube.kinds.pods import Pod

DEFERRED_TIMEOUT = 300
"""Seconds after which a node without capacity is not expected to have it soon."""
NEVER_RESIZED_TIMEOUT = 6 * 3600
"""Seconds after which a server that fails every resize is not expected to succeed soon."""
UNSCHEDULED_TIMEOUT = 600
"""Seconds after which an unscheduled pod would have a node if the cluster were able to grow."""
PROGRESS_TIMEOUT = 3600
"""Seconds without progress after which a change is stuck."""
MAX_DURATION = 7 * 86_400
"""Seconds after which a change that goes on without an end never ends."""
CRASH_LOOP_TIMEOUT = 60
"""Seconds in which a crash-looping container could have been resized between two crashes: its back-off is
10, 20 and 40 seconds.
"""


def stall_reason(situation: ChangeContext, change: OngoingChange) -> str:
    """Return why a pod cannot get its new size in a reasonable time; empty if it can."""
    awaited = _awaited_pods(situation, change)
    for pod in awaited:
        if _waiting_seconds(situation, pod) > PROGRESS_TIMEOUT:
            return f"{pod.name} has not got it in an hour"
    return (
        runtime_error(situation, awaited)
        or next(iter(pods_without_capacity(situation, awaited)), "")
        or _controller_stall_reason(situation, change)
        or _never_resized_reason(situation, change)
    )


def runtime_error(situation: ChangeContext, pods: Sequence[Pod]) -> str:
    """Return the error of a container runtime that rejects the size of one of these pods; empty if none does
    for long.
    """
    for pod in pods:
        if (
            pod.resize
            and pod.resize.reason == "Error"
            and _waiting_seconds(situation, pod) > DEFERRED_TIMEOUT
        ):
            return f"{pod.name} was not resized: the container runtime rejected it: {pod.resize.message}"
    return ""


def awaited_pods_without_capacity(situation: ChangeContext, change: OngoingChange) -> dict[str, Pod]:
    """Return the pods whose node has no capacity for their new size, never or not soon, by the message to
    report.
    """
    return pods_without_capacity(situation, _awaited_pods(situation, change))


def pods_without_capacity(situation: ChangeContext, pods: Sequence[Pod]) -> dict[str, Pod]:
    """Return the pods of these whose node has no capacity for the size that they wait for, by the message to
    report.
    """
    found: dict[str, Pod] = {}
    for pod in pods:
        if pod.resize and pod.resize.reason == "Infeasible":
            found[f"{pod.name} cannot have it: {pod.resize.message}"] = pod
        if (
            pod.resize
            and pod.resize.reason == "Deferred"
            and _waiting_seconds(situation, pod) > DEFERRED_TIMEOUT
        ):
            found[f"the node of {pod.name} has no room for it: {pod.resize.message}"] = pod
    return found


def pods_to_move(situation: ChangeContext, change: OngoingChange) -> dict[str, Pod]:
    """Return the pods without capacity that are recreated elsewhere, by the message to report.

    They return with the size of their template and injected containers, so that must be enough. Each is moved
    only once, because it is resized on its new node. A Job's pod would lose its work, and a DaemonSet's would
    return to the same node.
    """
    workload, made = situation.workload, change.before | situation.template_sizes
    enough = not increases_requests(made, change.after)
    if change.way is not UpdateMethod.IN_PLACE or not (enough and situation.strategy.allow_recreate):
        return {}
    if workload.kind == "DaemonSet" or not workload.is_long_running:
        return {}
    full = awaited_pods_without_capacity(situation, change)
    return {why: pod for why, pod in full.items() if pod.created <= change.started}


def count_missing_pods(situation: ChangeContext) -> int:
    """Return how many pods are missing."""
    return max(situation.workload.replicas - len(situation.live), 0)


def eviction_failure(situation: ChangeContext, change: OngoingChange) -> str:
    """Return why an eviction for capacity failed: the pod did not return or found no node, or no eviction was
    allowed.
    """
    if not change.moved or change.phase is Phase.VERIFYING or change.way in REPLACING_METHODS:
        return ""
    if unplaced := _find_unscheduled_pod(situation, change):
        return f"no node has room for {unplaced}"
    gone = (
        f"{count_missing_pods(situation)} of its pods have not come back"
        if count_missing_pods(situation)
        else ""
    )
    why = gone or next(iter(awaited_pods_without_capacity(situation, change)), "")
    return why if _is_late(situation, change) else ""


def crash_loop_reason(situation: ChangeContext, change: OngoingChange) -> str:
    """Return which pod has crashed for too long to be resized; empty if none has."""
    is_promoted = change.way is UpdateMethod.IN_PLACE and change.phase is Phase.PROMOTING
    if not is_promoted or situation.now - change.since < CRASH_LOOP_TIMEOUT:
        return ""
    pods = list_resizable(situation, situation.live, change.after)
    behind = [pod for pod in pods if not has_size(pod, change.after)]
    return next(
        (f"{pod.name} crashes before it can be resized" for pod in behind if is_crash_looping(pod)), ""
    )


def needs_another_renewal(situation: ChangeContext, change: OngoingChange) -> bool:
    """Return whether a pod that was created during evictions has another size, for the first time.

    It may be from the template before, for example because somebody scaled out just then.
    """
    if change.way is not UpdateMethod.RECREATE or change.phase is not Phase.PROMOTING or change.renews:
        return False
    return any(change.is_created_by_change(pod) and not has_size(pod, change.after) for pod in situation.live)


def _awaited_pods(situation: ChangeContext, change: OngoingChange) -> list[Pod]:
    """Return the pods that were resized and have not settled yet.

    Return none once all had settled: later pods do not count against the change, and are waited for
    elsewhere.
    """
    if change.phase is Phase.VERIFYING or (
        change.way in REPLACING_METHODS and change.phase is Phase.PROMOTING
    ):
        return []
    return [
        pod for pod in situation.live if has_size(pod, change.after) and not is_settled(pod, change.after)
    ]


def _waiting_seconds(situation: ChangeContext, pod: Pod) -> int:
    return situation.now - situation.observations.unsettled_since.get(pod.uid, situation.now)


def _controller_stall_reason(situation: ChangeContext, change: OngoingChange) -> str:
    """Return why replaced pods do not appear, or appear with another size; empty if neither."""
    if change.way not in REPLACING_METHODS or change.phase is not Phase.PROMOTING:
        return ""
    behind = [pod for pod in situation.live if not has_size(pod, change.after)]
    is_written = situation.template_sizes == merge_sizes(situation.template_sizes, change.after)
    if is_written and not behind and is_rollout_complete(situation):
        return ""  # The rollout may have completed hours before this check.
    if unplaced := _find_unscheduled_pod(situation, change):
        return f"no node has room for {unplaced}"
    if _is_late(situation, change):
        return "its pods were not replaced in time"
    all_came = is_rollout_complete(situation) and behind and all(map(change.is_created_by_change, behind))
    if all_came and not needs_another_renewal(situation, change):
        return f"{behind[0].name} came of another size than its template's: something else sets it"
    return ""


def _find_unscheduled_pod(situation: ChangeContext, change: OngoingChange) -> str:
    """Return a pod that has become too large for every node and has waited for one for too long."""
    long_ago = situation.now - UNSCHEDULED_TIMEOUT
    if situation.observations.observed_since > long_ago or not has_increase(change.before, change.after):
        return ""
    waiting = (pod for pod in situation.live if not pod.node and pod.created < long_ago)
    return next((pod.name for pod in waiting if has_size(pod, change.after)), "")


def _is_late(situation: ChangeContext, change: OngoingChange) -> bool:
    """Return whether a change that replaces pods has made no progress for too long, although it could."""
    now, windows = situation.now, _required_windows(situation, change)
    came = [pod.created for pod in situation.live if pod.ready and has_size(pod, change.after)]
    went_on = max(change.since, situation.observations.observed_since, *came)
    # A controller also goes on while no window is open; and if windows open every hour, none is long enough
    # alone.
    waited = now - max(went_on, last_opening(windows, now=now))
    is_long = max(waited, open_seconds(windows, since=went_on, now=now)) > PROGRESS_TIMEOUT
    # Pods that an autoscaler keeps adding are no sign that the others will be replaced.
    is_longest = not windows and now - max(change.since, situation.observations.observed_since) > MAX_DURATION
    return (is_long or is_longest) and not _is_waiting_for_window(situation, change)


def _required_windows(situation: ChangeContext, change: OngoingChange) -> Sequence[MaintenanceWindow]:
    """Return the windows that a change waits for; more memory after an OOM kill waits for none."""
    return () if change.relief else situation.strategy.windows


def _never_resized_reason(situation: ChangeContext, change: OngoingChange) -> str:
    """Return which pod or template never got its size although it could: the server fails each time without
    rejecting it.
    """
    if change.phase is Phase.VERIFYING or (
        change.way in REPLACING_METHODS and change.phase is Phase.PROMOTING
    ):
        return ""
    windows, began = (
        _required_windows(situation, change),
        max(change.since, situation.observations.observed_since),
    )
    is_long = open_seconds(windows, since=began, now=situation.now) > NEVER_RESIZED_TIMEOUT
    if not is_long and situation.now - began <= MAX_DURATION:
        return ""
    pods = list_resizable(situation, situation.live, change.after)
    if change.way is UpdateMethod.TEMPLATE:
        is_written = situation.template_sizes == merge_sizes(situation.template_sizes, change.after)
        return "" if is_written else "its template could not be changed"
    if change.phase is Phase.CANARY:
        pods = [pod for pod in pods if pod.name in change.canaries]
    behind = [pod for pod in pods if not has_size(pod, change.after) and not is_crash_looping(pod)]
    return f"{behind[0].name} could not be resized" if behind else ""


def _is_waiting_for_window(situation: ChangeContext, change: OngoingChange) -> bool:
    """Return whether a change waits only for a window, and the pods that it replaced are ready.

    A controller that replaces pods by itself waits for no window.
    """
    workload = situation.workload
    if (
        is_window_open(situation, change)
        or workload.is_rolling_out
        or len(situation.live) < workload.replicas
    ):
        return False
    return all(pod.ready for pod in situation.live if has_size(pod, change.after))
