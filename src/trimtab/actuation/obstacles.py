"""What speaks against a change that is under way: others were there first, it is refused, it is stuck, or it hurts.

Left out: what is done about that (`progress`), and what counts as worse (`verdict`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trimtab.actuation.marks import Applied, Change, Phase, Way
from trimtab.actuation.situation import TOLERATED, Situation
from trimtab.actuation.sizes import Sizes, grows, has_size, is_settled, joined
from trimtab.actuation.verdict import Verdict, health, judge
from trimtab.actuation.windows import last_opening, next_opening, open_for
from trimtab.kube.pods import Pod

DEFERRED_FOR = 300
"""A node that has no room for so long will not have it soon."""
UNPLACED_FOR = 600
"""A pod for which no node was found in so long would have got one by then, had the cluster been able to grow."""
IN_PROGRESS_FOR = 3600
"""Nothing takes so long but what is stuck."""
SET_BACK = (
    "its template was set back to the sizes of before: something keeps it so, such as a GitOps tool; "
    "change them there, or set updateStrategy.template to Never"
)
REPLACES = frozenset({Way.ROLLOUT, Way.RECREATE})
"""The ways by which pods come anew."""


def overtaken(situation: Situation, change: Change) -> str:
    """Whether somebody else changed the workload under us; what we saw of it so far then says nothing any more."""
    workload = situation.workload
    if _set_back(situation, change):
        return ""  # that is no change of somebody's own, and would be made again and again
    if not situation.live and (workload.replicas == 0 or workload.kind == "Job"):
        return "it has no pods any more"
    ours = joined(change.template, change.after) if change.patches_template else change.template
    if situation.template not in (change.template, ours):
        return "the sizes in its template were changed meanwhile"
    by_us = change.way is Way.ROLLOUT and situation.template == ours
    if workload.rolling and not by_us:
        return "a rollout began meanwhile"
    return ""


def refused(situation: Situation, change: Change) -> str:
    """The server's own words, where it said no to this change."""
    if not situation.sightings.refused:
        return refused_template(situation, change)
    words = [situation.refusal(pod.uid, size_of(pod, change)) for pod in situation.live]
    return next(filter(None, words), "") or refused_template(situation, change)


def _set_back(situation: Situation, change: Change) -> bool:
    """Whether the template had our sizes and has those of before: whoever keeps it so will do that again."""
    is_before = situation.template == change.template != joined(change.template, change.after)
    return change.patches_template and is_before and situation.sightings.patched == change.id


def set_back_since(situation: Situation, applied: Applied) -> bool:
    """The same of a change that is done: a rollout for us and one for them would follow each other for ever."""
    now = situation.template
    was, ours = joined(now, applied.before), joined(now, applied.sizes)
    return bool(applied.before) and now == was != ours == applied.template


def refused_template(situation: Situation, change: Change) -> str:
    """The same of the template alone."""
    if not change.patches_template:
        return ""
    if _set_back(situation, change):
        return SET_BACK
    return situation.refusal(situation.workload.uid, joined(situation.template, change.after))


def without_room(situation: Situation, change: Change) -> dict[str, Pod]:
    """The pods whose node has no room for their new size, never or not soon, by what is to be said of that."""
    found: dict[str, Pod] = {}
    for pod in _awaited(situation, change):
        if pod.resize and pod.resize.reason == "Infeasible":
            found[f"{pod.name} cannot have it: {pod.resize.message}"] = pod
        if pod.resize and pod.resize.reason == "Deferred" and _waited(situation, pod) > DEFERRED_FOR:
            found[f"the node of {pod.name} has no room for it: {pod.resize.message}"] = pod
    return found


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


def stuck(situation: Situation, change: Change) -> str:
    """Whether a pod cannot get its new size, or not in any sensible time."""
    for pod in _awaited(situation, change):
        if pod.resize and pod.resize.reason == "Error" and _waited(situation, pod) > DEFERRED_FOR:
            return f"{pod.name} is refused it by its runtime: {pod.resize.message}"
        if _waited(situation, pod) > IN_PROGRESS_FOR:
            return f"{pod.name} has not got it in an hour"
    return next(iter(without_room(situation, change)), "") or _stuck_by_controller(situation, change)


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
    if not behind and rolled_out(situation):
        return ""  # also where nobody has looked for hours
    if unplaced := _unplaced(situation, change):
        return f"no node has room for {unplaced}"
    if _is_late(situation, change):
        return "its pods were not replaced in time"
    all_came = rolled_out(situation) and all(map(change.came_by_it, behind))
    if all_came and not renews_once_more(situation, change):
        return f"{behind[0].name} came of another size than its template's: something else sets it"
    return ""


def renews_once_more(situation: Situation, change: Change) -> bool:
    """Whether a pod that came while others are evicted is of another size, for the first time: it may be of the template of
    before, as where somebody scaled out just then.
    """
    if change.way is not Way.RECREATE or change.phase is not Phase.PROMOTING or change.renews:
        return False
    return any(change.came_by_it(pod) and not has_size(pod, change.after) for pod in situation.live)


def _unplaced(situation: Situation, change: Change) -> str:
    """A pod that has become too large for every node, and has waited for one for too long."""
    long_ago = situation.now - UNPLACED_FOR
    if situation.sightings.since > long_ago or not grows(change.before, change.after):
        return ""
    waiting = (pod for pod in situation.live if not pod.node and pod.created < long_ago)
    return next((pod.name for pod in waiting if has_size(pod, change.after)), "")


def _is_late(situation: Situation, change: Change) -> bool:
    """Whether a change by which pods are replaced has not gone on for too long, though it could."""
    now, windows = situation.now, situation.strategy.windows
    came = [pod.created for pod in situation.live if pod.ready and has_size(pod, change.after)]
    went_on = max(change.since, situation.sightings.since, *came)
    # A controller goes on also while no window is open; and of windows that open every hour none is long enough.
    waited = now - max(went_on, last_opening(windows, now=now))
    is_long = max(waited, open_for(windows, since=went_on, now=now)) > IN_PROGRESS_FOR
    return is_long and not _awaits_window(situation, change)


def _awaits_window(situation: Situation, change: Change) -> bool:
    """Whether it is only for a window to open that it does not go on: those that came by it are well.

    A controller that replaces pods by itself waits for none.
    """
    workload = situation.workload
    if is_open(situation) or workload.rolling or len(situation.live) < workload.replicas:
        return False
    return all(pod.ready for pod in situation.live if has_size(pod, change.after))


def is_open(situation: Situation) -> bool:
    """Whether changes may go on at this time of the week; more memory after a kill always may."""
    now = situation.now
    return situation.wish.urgent or next_opening(situation.strategy.windows, now=now) == now


def falls(pod: Pod) -> bool:
    """Whether a container waits to be started again, which a kubelet is slow to say: for most of the pause it tells how
    it ended. A resize meanwhile would never reach the cgroup of the pod itself (seen with Kubernetes 1.36), and more
    memory would be of no use; once it runs, it does.
    """
    return any(
        state.waiting == "CrashLoopBackOff" or (state.ended and state.last_exit and state.last_exit.code)
        for state in pod.states
    )


def passed_over(situation: Situation, pods: Sequence[Pod]) -> list[Pod]:
    """Those of a StatefulSet's pods that its controller will not replace, though its template has changed: it waits for each
    to be ready first, and one that falls or finds no node never is (seen with Kubernetes 1.36).
    """
    if situation.workload.kind != "StatefulSet" or not situation.workload.observed:
        return []
    return [pod for pod in pods if not pod.ready]


def verdict(situation: Situation, change: Change) -> Verdict:
    """How the pods that were changed fare, against how they did before."""
    evidence = situation.wish.evidence
    changed = [pod for pod in situation.live if has_size(pod, change.after)]
    if change.phase is Phase.CANARY:
        changed = [pod for pod in changed if pod.name in change.canaries]
    now = health(
        changed,
        # What our own resize restarts is no harm; once all have settled, every restart is. Ends are told by the second,
        # and a container that is quick ends, starts and has settled within one.
        since=change.settled + 1 if change.restarts and change.settled else change.since,
        until=situation.now,
        evidence=evidence,
        count_restarts=not change.restarts or bool(change.settled),
    )
    if (fell := _no_longer_ready(change, changed)) > len(changed) * TOLERATED:
        now = msgspec.structs.replace(now, unready=max(fell, now.unready))
    if changed and not any(each.resources.cpu_limit for pod in changed for each in pod.containers):
        # Of those without a limit nobody tells, for they never are.
        now = msgspec.structs.replace(now, throttled=0.0)
    if relieves(change):
        now = msgspec.structs.replace(now, killed=0, restarted=0, unready=0)
    return judge(change.health, now, evidence)


def _no_longer_ready(change: Change, pods: Sequence[Pod]) -> int:
    """How many pods that came by the change are not; when it had settled, all but a few were."""
    if change.way not in REPLACES or change.phase is not Phase.VERIFYING:
        return 0
    return sum(not pod.ready and change.since <= pod.created < change.settled for pod in pods)


def relieves(change: Change) -> bool:
    """Whether pods that were killed for lack of memory get more of it, and nothing is taken: what still falls, falls
    by what was. To take that back would leave them to be killed.
    """
    return bool(change.health.killed) and not grows(change.after, change.before)


def size_of(pod: Pod, change: Change) -> Sizes:
    """What a pod is to have after a change."""
    return {each.name: change.after[each.name] for each in pod.containers if each.name in change.after}


def rolled_out(situation: Situation) -> bool:
    """Whether its controller has replaced all pods that it is to replace, and they are well."""
    return situation.workload.observed and not situation.workload.rolling and not situation.unwell
