"""What speaks against a change that is under way: others were there first, it is refused, or it hurts.

Left out: what is waited for in vain (`stuck`), what is done about all that (`progress`), what counts as worse (`verdict`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trimtab.actuation.marks import Applied, Change, Phase, Way
from trimtab.actuation.situation import TOLERATED, Situation
from trimtab.actuation.sizes import Sizes, grows, has_size, joined
from trimtab.actuation.verdict import Verdict, health, judge
from trimtab.actuation.windows import next_opening
from trimtab.kube.pods import Pod

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
