"""What speaks against a change that is under way: others were there first, it is refused, or it hurts.

Left out: what is waited for in vain (`stuck`), what is done about all that (`progress`), what counts as worse (`verdict`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trimtab.actuation.change_annotations import Applied, Change, Phase, Way
from trimtab.actuation.decide.context import Situation
from trimtab.actuation.decide.health import STARTS_IN, Verdict, health_since, judge
from trimtab.actuation.decide.maintenance_windows import next_opening
from trimtab.actuation.resources import Sizes, adds_memory, has_size, joined
from trimtab.kube.kinds.pods import Pod

SET_BACK = (
    "its template was set back to the sizes of before: something keeps it so, such as a GitOps tool; "
    "change them there, or set updateStrategy.template to Never"
)
NEVER_OPEN = "no maintenance window ever opens: check the time zones in updateStrategy.windows"
WITHOUT_PODS = 3600
"""Seconds for which a workload may have no pods while it is changed, as where a quota keeps them from coming back."""
REPLACES = frozenset({Way.ROLLOUT, Way.RECREATE})
"""The ways by which pods come anew."""


def overtaken(situation: Situation, change: Change) -> str:
    """Whether somebody else changed the workload under us; what we saw of it so far then says nothing any more."""
    workload = situation.workload
    if _set_back(situation, change):
        return ""  # that is no change of somebody's own, and would be made again and again
    is_gone = workload.replicas == 0 or workload.kind == "Job"
    waited = situation.now - max(change.since, situation.sightings.since)
    is_lost = waited > WITHOUT_PODS and change.way is not Way.TEMPLATE
    if not situation.live and (is_gone or is_lost):
        return "it has no pods any more"
    is_waiting = change.phase in {Phase.CANARY, Phase.PROMOTING} and not change.relief
    if is_waiting and next_opening(situation.strategy.windows, now=situation.now) is None:
        return NEVER_OPEN
    ours = joined(change.template, change.after) if change.patches_template else change.template
    if situation.template not in (change.template, ours):
        return "the sizes in its template were changed meanwhile"
    by_us = change.way is Way.ROLLOUT and situation.template == ours
    in_its_way = not (
        change.relief and change.way is Way.IN_PLACE
    )  # pods are given more wherever they come from
    if workload.rolling and not by_us and in_its_way:
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


def is_open(situation: Situation, change: Change) -> bool:
    """Whether a change may go on at this time of the week; more memory after a kill always may."""
    now = situation.now
    return change.relief or next_opening(situation.strategy.windows, now=now) == now


def gives_way(situation: Situation, change: Change) -> bool:
    """Whether pods are killed for lack of memory while a change that brings none is watched on a few, or waits for a window."""
    if change.relief or not situation.is_relief_due or not adds_memory(change.after, situation.wish.sizes):
        return False
    waits = change.phase is Phase.PROMOTING and not is_open(situation, change)
    return change.phase is Phase.CANARY or waits


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
    """How the pods that were changed fare, against how they did before.

    Nothing speaks against more memory for pods that were killed for lack of it: what still fails, fails by what was, and
    guardrails may be broken by the kills.
    """
    if change.relief:
        return Verdict()
    evidence = situation.wish.evidence
    changed = [pod for pod in situation.live if has_size(pod, change.after)]
    if change.phase is Phase.CANARY:
        changed = [pod for pod in changed if pod.name in change.canaries]
    now = health_since(
        changed,
        # What our own resize restarts is no harm; once all have settled, every restart is. Ends are told by the second,
        # and a container that is quick ends, starts and has settled within one.
        since=change.settled + 1 if change.restarts and change.settled else change.since,
        now=situation.now,
        window=_window(situation),
        evidence=evidence,
        known=change.ends,
        count_restarts=not change.restarts or bool(change.settled),
    )
    if changed and not any(each.resources.cpu_limit for pod in changed for each in pod.containers):
        # Of those without a limit nobody tells, for they never are.
        now = msgspec.structs.replace(now, throttled=0.0)
    seen = situation.sightings.unready
    unready = [
        situation.now - seen.get(pod.uid, situation.now)
        for pod in changed
        if not pod.ready and _should_be_ready(situation, change, pod)
    ]
    return judge(change.health, now, evidence, unready=unready)


def _should_be_ready(situation: Situation, change: Change, pod: Pod) -> bool:
    """Whether a pod was there before the change, came by it and has been ready since, or has had the time to start.

    One that an autoscaler has just added says nothing of the change.
    """
    was_ready = change.phase is Phase.VERIFYING and change.since <= pod.created < change.settled
    came_by_it = change.way in REPLACES and was_ready
    had_time = situation.now - pod.created >= max(STARTS_IN, _window(situation))
    return pod.created <= change.started or came_by_it or had_time


def _window(situation: Situation) -> int:
    return int(situation.strategy.canary.observation.seconds)


def size_of(pod: Pod, change: Change) -> Sizes:
    """What a pod is to have after a change."""
    return {each.name: change.after[each.name] for each in pod.containers if each.name in change.after}


def rolled_out(situation: Situation) -> bool:
    """Whether its controller has replaced all pods that it is to replace, and they are well."""
    return situation.workload.observed and not situation.workload.rolling and not situation.unwell
