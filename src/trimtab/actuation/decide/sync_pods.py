"""Pod sync: bring replacements and new replicas to the size that is assigned to them, and end startup boosts.

A pod is brought along only from the size that its template gave it. One of any other size was resized by somebody
else, and is left to them; and once a container's size in the template is edited, that size rules again.
"""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.actuation.actions import Deed, ResizePod, Urgency, Wait
from trimtab.actuation.change_annotations import Change, Marks, Phase
from trimtab.actuation.decide.conflicts import falls
from trimtab.actuation.decide.context import Situation
from trimtab.actuation.decide.method import restarts_nothing
from trimtab.actuation.decide.startup_boost import boost, is_boosted
from trimtab.actuation.effective_size import Assignment
from trimtab.actuation.resources import Sizes, grows, has_size, sizes_of
from trimtab.kube.kinds.pods import Pod

SYNCED_BY = 60
"""Seconds after which pod sync has brought a new pod to its size, if it can: a container that crashes is started again
after 10, 20 and 40 seconds, and can be resized while it runs."""

RESTARTS = "to resize it restarts a container"


def tend(situation: Situation, marks: Marks) -> list[Deed]:
    """Bring each pod to the size that it should have while no change is under way."""
    if not situation.pod_sync.enabled:
        return []
    deeds: list[Deed] = []
    looks: list[int] = []
    assignment = _assignment(situation, marks)
    for pod in situation.live:
        wished, look_again = _wished(situation, assignment, pod)
        if look_again is not None:
            looks.append(look_again)
        if wished is not None and (deed := _resize(situation, pod, wished)):
            deeds.append(deed)
    if deeds or not looks or situation.wish.urgent:
        return deeds  # pods that are killed for lack of memory do not wait for one that starts
    # While a pod starts, no change begins: a boosted size is nobody's size from before.
    return [Wait(min(looks), "pods are starting")]


def sync_during(situation: Situation, marks: Marks, change: Change) -> Iterator[Deed]:
    """Yield the resizes of pods that came during a change that is not, or no longer, meant for all pods.

    Else they would keep the template's size for as long as canaries are watched, or a revert takes. Once a change is
    promoted, it gives its size to every pod itself.
    """
    if not situation.pod_sync.enabled or change.phase not in {Phase.CANARY, Phase.REVERTING}:
        return
    assignment, rule = _assignment(situation, marks), situation.strategy.startup_boost
    for pod in situation.live:
        if pod.name in change.canaries or (change.phase is Phase.REVERTING and has_size(pod, change.after)):
            continue
        boosted = rule and is_boosted(pod, assignment.boostable_size(pod), rule, now=situation.now)
        if (
            assignment.is_behind(pod)
            and not boosted
            and (deed := _resize(situation, pod, assignment.own_size(pod)))
        ):
            yield deed


def left_behind(situation: Situation, marks: Marks) -> dict[str, Pod]:
    """Return the pods that pod sync cannot bring to their size for now, by the reason to report."""
    if not situation.pod_sync.enabled:
        return {}
    assignment, found = _assignment(situation, marks), {}
    for pod in situation.live:
        if situation.now - pod.created > SYNCED_BY and assignment.is_behind(pod):
            why = situation.refusal(pod.uid, assignment.own_size(pod))
            why = why or ("it crashes before it can be resized" if falls(pod) else RESTARTS)
            found[f"Pod {pod.name} still has the size of its template: {why}"] = pod
    return found


def needs_restart(situation: Situation, marks: Marks) -> list[Pod]:
    """Return the pods that only a change can bring to their size: it may restart containers where the policy allows it."""
    if not situation.strategy.allow_recreate:
        return []
    return [pod for why, pod in left_behind(situation, marks).items() if why.endswith(RESTARTS)]


def _assignment(situation: Situation, marks: Marks) -> Assignment:
    return Assignment.of(marks, situation.template, excluded=situation.wish.alone)


def _resize(situation: Situation, pod: Pod, wished: Sizes) -> ResizePod | None:
    """Return the resize of a pod that needs one and can have it now without a restart."""
    current = sizes_of(pod.containers)
    if has_size(pod, wished) or falls(pod) or situation.refusal(pod.uid, wished):
        return None
    if not restarts_nothing(pod.containers, current, wished):
        return None
    return ResizePod(pod, wished, Urgency.UP if grows(current, wished) else Urgency.DOWN)


def _wished(situation: Situation, assignment: Assignment, pod: Pod) -> tuple[Sizes | None, int | None]:
    now, rule = situation.now, situation.strategy.startup_boost
    boostable = assignment.boostable_size(pod) if rule else {}
    boosted = rule and boostable and is_boosted(pod, boostable, rule, now=now)
    if assignment.is_behind(pod) and not boosted:
        return assignment.own_size(pod), None
    if not rule or not boostable:
        return None, None
    found = boost(pod, boostable, rule, now=now)
    return found.sizes, found.look_again
