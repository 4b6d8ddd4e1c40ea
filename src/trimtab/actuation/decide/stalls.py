"""What a change waits for in vain: a node without room, a runtime that refuses, a pod that falls, a controller that does not
come to its end; and which pods are then to be made anew elsewhere.

Left out: what is done about that (`progress`).
"""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.actuation.change_annotations import Change, Phase, Way
from trimtab.actuation.decide.conflicts import REPLACES, falls, is_open, rolled_out
from trimtab.actuation.decide.context import Situation
from trimtab.actuation.decide.maintenance_windows import last_opening, open_for
from trimtab.actuation.decide.method import resizable
from trimtab.actuation.resources import grows, has_size, is_settled, joined, needs_room
from trimtab.api.optimizationpolicy import MaintenanceWindow
from trimtab.kube.kinds.pods import Pod

DEFERRED_FOR = 300
"""A node that has no room for so long will not have it soon."""
NEVER_FOR = 6 * 3600
"""A server that fails for so long whenever a pod is to be resized will not do it soon."""
UNPLACED_FOR = 600
"""A pod for which no node was found in so long would have got one by then, had the cluster been able to grow."""
IN_PROGRESS_FOR = 3600
"""Nothing takes so long but what is stuck."""
LONGEST = 7 * 86_400
"""Whatever goes on for so long, and comes to no end, never does."""
FALLING_FOR = 60
"""Who could be caught between two falls has been by then: a container is started again after 10, 20 and 40 seconds."""


def stuck(situation: Situation, change: Change) -> str:
    """Whether a pod cannot get its new size, or not in any sensible time."""
    awaited = _awaited(situation, change)
    for pod in awaited:
        if _waited(situation, pod) > IN_PROGRESS_FOR:
            return f"{pod.name} has not got it in an hour"
    return (
        runtime_error(situation, awaited)
        or next(iter(no_room(situation, awaited)), "")
        or _stuck_by_controller(situation, change)
        or _never_resized(situation, change)
    )


def runtime_error(situation: Situation, pods: Sequence[Pod]) -> str:
    """What the runtime of a node says that refuses one of these pods its size; empty where none does for long."""
    for pod in pods:
        if pod.resize and pod.resize.reason == "Error" and _waited(situation, pod) > DEFERRED_FOR:
            return f"{pod.name} is refused it by its runtime: {pod.resize.message}"
    return ""


def without_room(situation: Situation, change: Change) -> dict[str, Pod]:
    """The pods whose node has no room for their new size, never or not soon, by what is to be said of that."""
    return no_room(situation, _awaited(situation, change))


def no_room(situation: Situation, pods: Sequence[Pod]) -> dict[str, Pod]:
    """Those of these pods whose node has no room for the size that they wait for, by what is to be said of that."""
    found: dict[str, Pod] = {}
    for pod in pods:
        if pod.resize and pod.resize.reason == "Infeasible":
            found[f"{pod.name} cannot have it: {pod.resize.message}"] = pod
        if pod.resize and pod.resize.reason == "Deferred" and _waited(situation, pod) > DEFERRED_FOR:
            found[f"the node of {pod.name} has no room for it: {pod.resize.message}"] = pod
    return found


def outgrown(situation: Situation, change: Change) -> dict[str, Pod]:
    """The pods without room that alone are made anew where there is some, by what is to be said of that.

    They come of their template's size, and with what is injected, so that must be enough; and once only, for then they
    are resized there. A Job's would lose what it has done, and a DaemonSet's would come to the same node.
    """
    workload, made = situation.workload, change.before | situation.template
    enough = not needs_room(made, change.after)
    if change.way is not Way.IN_PLACE or not (enough and situation.strategy.allow_recreate):
        return {}
    if workload.kind == "DaemonSet" or not workload.runs_on:
        return {}
    full = without_room(situation, change)
    return {why: pod for why, pod in full.items() if pod.created <= change.started}


def missing(situation: Situation) -> int:
    """How many pods there should be, and are not."""
    return max(situation.workload.replicas - len(situation.live), 0)


def moved_in_vain(situation: Situation, change: Change) -> str:
    """Whether a pod that was evicted for want of room has not come back, or found no other node; or none was let go."""
    if not change.moved or change.phase is Phase.VERIFYING or change.way in REPLACES:
        return ""
    if unplaced := _unplaced(situation, change):
        return f"no node has room for {unplaced}"
    gone = f"{missing(situation)} of its pods have not come back" if missing(situation) else ""
    why = gone or next(iter(without_room(situation, change)), "")
    return why if _is_late(situation, change) else ""


def falling(situation: Situation, change: Change) -> str:
    """Whether a pod has not run for long enough to be resized, for too long."""
    is_promoted = change.way is Way.IN_PLACE and change.phase is Phase.PROMOTING
    if not is_promoted or situation.now - change.since < FALLING_FOR:
        return ""
    pods = resizable(situation, situation.live, change.after)
    behind = [pod for pod in pods if not has_size(pod, change.after)]
    return next((f"{pod.name} falls before it can be resized" for pod in behind if falls(pod)), "")


def renews_once_more(situation: Situation, change: Change) -> bool:
    """Whether a pod that came while others are evicted is of another size, for the first time: it may be of the template of
    before, as where somebody scaled out just then.
    """
    if change.way is not Way.RECREATE or change.phase is not Phase.PROMOTING or change.renews:
        return False
    return any(change.came_by_it(pod) and not has_size(pod, change.after) for pod in situation.live)


def _awaited(situation: Situation, change: Change) -> list[Pod]:
    """The pods that were resized, and do not have it in effect yet.

    None once all had: who comes later speaks against nothing, and is waited for elsewhere.
    """
    if change.phase is Phase.VERIFYING or (change.way in REPLACES and change.phase is Phase.PROMOTING):
        return []
    return [
        pod for pod in situation.live if has_size(pod, change.after) and not is_settled(pod, change.after)
    ]


def _waited(situation: Situation, pod: Pod) -> int:
    return situation.now - situation.sightings.unsettled.get(pod.uid, situation.now)


def _stuck_by_controller(situation: Situation, change: Change) -> str:
    """Whether replaced pods do not come, or come of another size."""
    if change.way not in REPLACES or change.phase is not Phase.PROMOTING:
        return ""
    behind = [pod for pod in situation.live if not has_size(pod, change.after)]
    is_written = situation.template == joined(situation.template, change.after)
    if is_written and not behind and rolled_out(situation):
        return ""  # also where nobody has looked for hours
    if unplaced := _unplaced(situation, change):
        return f"no node has room for {unplaced}"
    if _is_late(situation, change):
        return "its pods were not replaced in time"
    all_came = rolled_out(situation) and behind and all(map(change.came_by_it, behind))
    if all_came and not renews_once_more(situation, change):
        return f"{behind[0].name} came of another size than its template's: something else sets it"
    return ""


def _unplaced(situation: Situation, change: Change) -> str:
    """A pod that has become too large for every node, and has waited for one for too long."""
    long_ago = situation.now - UNPLACED_FOR
    if situation.sightings.since > long_ago or not grows(change.before, change.after):
        return ""
    waiting = (pod for pod in situation.live if not pod.node and pod.created < long_ago)
    return next((pod.name for pod in waiting if has_size(pod, change.after)), "")


def _is_late(situation: Situation, change: Change) -> bool:
    """Whether a change by which pods are replaced has not gone on for too long, though it could."""
    now, windows = situation.now, _windows(situation, change)
    came = [pod.created for pod in situation.live if pod.ready and has_size(pod, change.after)]
    went_on = max(change.since, situation.sightings.since, *came)
    # A controller goes on also while no window is open; and of windows that open every hour none is long enough.
    waited = now - max(went_on, last_opening(windows, now=now))
    is_long = max(waited, open_for(windows, since=went_on, now=now)) > IN_PROGRESS_FOR
    # Pods that an autoscaler adds come all the time, and are no sign that the others will.
    is_longest = not windows and now - max(change.since, situation.sightings.since) > LONGEST
    return (is_long or is_longest) and not _awaits_window(situation, change)


def _windows(situation: Situation, change: Change) -> Sequence[MaintenanceWindow]:
    """The windows that a change waits for; more memory after a kill waits for none."""
    return () if change.relief else situation.strategy.windows


def _never_resized(situation: Situation, change: Change) -> str:
    """Whether a pod or the template was never given its size, though it could be: the server fails each time, without
    refusing it.
    """
    if change.phase is Phase.VERIFYING or (change.way in REPLACES and change.phase is Phase.PROMOTING):
        return ""
    windows, began = _windows(situation, change), max(change.since, situation.sightings.since)
    is_long = open_for(windows, since=began, now=situation.now) > NEVER_FOR
    if not is_long and situation.now - began <= LONGEST:
        return ""
    pods = resizable(situation, situation.live, change.after)
    if change.way is Way.TEMPLATE:
        is_written = situation.template == joined(situation.template, change.after)
        return "" if is_written else "its template could not be changed"
    if change.phase is Phase.CANARY:
        pods = [pod for pod in pods if pod.name in change.canaries]
    behind = [pod for pod in pods if not has_size(pod, change.after) and not falls(pod)]
    return f"{behind[0].name} could not be resized" if behind else ""


def _awaits_window(situation: Situation, change: Change) -> bool:
    """Whether it is only for a window to open that it does not go on: those that came by it are well.

    A controller that replaces pods by itself waits for none.
    """
    workload = situation.workload
    if is_open(situation, change) or workload.rolling or len(situation.live) < workload.replicas:
        return False
    return all(pod.ready for pod in situation.live if has_size(pod, change.after))
