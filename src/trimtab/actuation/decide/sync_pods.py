"""Pod sync: bring replacements and new replicas to the size that is assigned to them, and end startup boosts.

A pod is synced only from the size that its template gave it. A pod of any other size was resized by somebody
else and keeps that size. Once a container's size in the template is edited, the template wins.
"""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.actuation.actions import ChangeAction, Priority, ResizePod, Wait
from trimtab.actuation.change_annotations import ChangeAnnotations, OngoingChange, Phase
from trimtab.actuation.decide.conflicts import is_crash_looping
from trimtab.actuation.decide.context import ChangeContext
from trimtab.actuation.decide.method import is_restart_free
from trimtab.actuation.decide.startup_boost import decide_boost, is_boosted
from trimtab.actuation.effective_size import Assignment
from trimtab.actuation.resources import Sizes, container_sizes, has_increase, has_size
from trimtab.kube.kinds.pods import Pod

SYNC_TIMEOUT = 60
"""Seconds after which pod sync has resized a new pod, if it can: a crashing container is restarted after
10, 20 and 40 seconds, and can be resized while it runs.
"""

RESTART_REQUIRED = "to resize it restarts a container"


def sync_pods(situation: ChangeContext, marks: ChangeAnnotations) -> list[ChangeAction]:
    """Bring each pod to the size that it should have while no change is under way."""
    if not situation.pod_sync.enabled:
        return []
    deeds: list[ChangeAction] = []
    looks: list[int] = []
    assignment = _build_assignment(situation, marks)
    for pod in situation.live:
        wished, look_again = _wanted_size(situation, assignment, pod)
        if look_again is not None:
            looks.append(look_again)
        if wished is not None and (deed := _resize(situation, pod, wished)):
            deeds.append(deed)
    if deeds or not looks or situation.desired.is_urgent:
        return deeds  # OOM killed pods do not wait for one that starts.
    # No change starts while a pod starts, because a boosted size is not a size to return to.
    return [Wait(min(looks), "pods are starting")]


def sync_during_change(
    situation: ChangeContext, marks: ChangeAnnotations, change: OngoingChange
) -> Iterator[ChangeAction]:
    """Yield the resizes of pods created during a change that does not, or no longer, cover all pods.

    They would otherwise keep the template's size while canaries are observed or a revert runs. A promoted
    change gives its size to every pod itself.
    """
    if not situation.pod_sync.enabled or change.phase not in {Phase.CANARY, Phase.REVERTING}:
        return
    assignment, rule = _build_assignment(situation, marks), situation.strategy.startup_boost
    for pod in situation.live:
        if pod.name in change.canaries or (change.phase is Phase.REVERTING and has_size(pod, change.after)):
            continue
        boosted = rule and is_boosted(pod, assignment.boostable_size(pod), rule, now=situation.now)
        if (
            assignment.needs_sync(pod)
            and not boosted
            and (deed := _resize(situation, pod, assignment.assigned_size(pod)))
        ):
            yield deed


def unsynced_pods(situation: ChangeContext, marks: ChangeAnnotations) -> dict[str, Pod]:
    """Return the pods that pod sync cannot bring to their size for now, by the reason to report."""
    if not situation.pod_sync.enabled:
        return {}
    assignment, found = _build_assignment(situation, marks), {}
    for pod in situation.live:
        if situation.now - pod.created > SYNC_TIMEOUT and assignment.needs_sync(pod):
            why = situation.rejection(pod.uid, assignment.assigned_size(pod))
            why = why or (
                "it crashes before it can be resized" if is_crash_looping(pod) else RESTART_REQUIRED
            )
            found[f"Pod {pod.name} still has the size of its template: {why}"] = pod
    return found


def pods_needing_restart(situation: ChangeContext, marks: ChangeAnnotations) -> list[Pod]:
    """Return the pods that only a change can bring to their size: it may restart containers where the policy allows it."""
    if not situation.strategy.allow_recreate:
        return []
    return [pod for why, pod in unsynced_pods(situation, marks).items() if why.endswith(RESTART_REQUIRED)]


def _build_assignment(situation: ChangeContext, marks: ChangeAnnotations) -> Assignment:
    return Assignment.from_annotations(
        marks, situation.template_sizes, excluded=situation.desired.excluded_containers
    )


def _resize(situation: ChangeContext, pod: Pod, wished: Sizes) -> ResizePod | None:
    """Return the resize of a pod that needs one and can have it now without a restart."""
    current = container_sizes(pod.containers)
    if has_size(pod, wished) or is_crash_looping(pod) or situation.rejection(pod.uid, wished):
        return None
    if not is_restart_free(pod.containers, current, wished):
        return None
    return ResizePod(pod, wished, Priority.INCREASE if has_increase(current, wished) else Priority.DECREASE)


def _wanted_size(
    situation: ChangeContext, assignment: Assignment, pod: Pod
) -> tuple[Sizes | None, int | None]:
    now, rule = situation.now, situation.strategy.startup_boost
    boostable = assignment.boostable_size(pod) if rule else {}
    boosted = rule and boostable and is_boosted(pod, boostable, rule, now=now)
    if assignment.needs_sync(pod) and not boosted:
        return assignment.assigned_size(pod), None
    if not rule or not boostable:
        return None, None
    found = decide_boost(pod, boostable, rule, now=now)
    return found.sizes, found.recheck_at
