"""Pod sync: bring replacements and new replicas to the size that is assigned to them, and end startup boosts.

A pod is synced only from the size that its template gave it. A pod of any other size was resized by somebody
else and keeps that size. Once a container's size in the template is edited, the template wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from trimtab.actuation.actions import (
    ChangeAction,
    EmitEvent,
    Priority,
    ResizePod,
    Wait,
    WriteAnnotations,
)
from trimtab.actuation.change_annotations import Phase
from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.decide.method import is_restart_free, list_resizable
from trimtab.actuation.decide.observation import Observation, evaluated_once
from trimtab.actuation.decide.stalls import is_crash_looping
from trimtab.actuation.effective_size import Assignment, decide_boost, is_boosted
from trimtab.actuation.resources import (
    Sizes,
    container_sizes,
    format_sizes,
    has_increase,
    has_size,
    keep_memory_limit,
)
from trimtab.kube.kinds.pods import Pod

RESTART_REQUIRED = "resizing it restarts a container (resizePolicy)"


class SyncWork(NamedTuple):
    """The resizes of pod sync that are due, and the time at which the next boost ends, if one goes on."""

    resizes: list[ChangeAction]
    recheck_at: int | None


@evaluated_once
def sync_work(observation: Observation) -> SyncWork:
    """Return the work that brings each pod to the size that it should have while no change is under way."""
    if not observation.pod_sync.enabled:
        return SyncWork([], None)
    resizes: list[ChangeAction] = []
    rechecks: list[int] = []
    assignment = _build_assignment(observation)
    for pod in observation.live:
        wanted, recheck_at = _wanted_size(observation, assignment, pod)
        if recheck_at is not None:
            rechecks.append(recheck_at)
        if wanted is not None and (action := _resize(observation, pod, wanted)):
            resizes.append(action)
    return SyncWork(resizes, min(rechecks, default=None))


@evaluated_once
def raised_limits(observation: Observation) -> Sizes:
    """Return the applied sizes with the memory limits that new pods have, where these are higher and cannot be lowered
    in place; nothing if no new pod is concerned.

    Before Kubernetes 1.34, the server would reject each resize of such a pod, which would keep all of its template's
    size.
    """
    applied = observation.annotations.applied
    if applied is None or not (observation.pod_sync.enabled and observation.desired.memory_limits_fixed):
        return {}
    assignment, sizes = _build_assignment(observation), dict(applied.sizes)
    for pod in observation.live:
        if assignment.needs_sync(pod) and not list_resizable(
            observation, [pod], assignment.assigned_size(pod)
        ):
            made = {each.name: each for each in pod.containers if not each.restart_on_memory_resize}
            sizes |= {
                name: keep_memory_limit(made[name].resources, size)
                for name, size in sizes.items()
                if name in made
            }
    return sizes if sizes != applied.sizes else {}


def record_raised_limits(observation: Observation) -> list[ChangeAction]:
    """Record the higher limits as those of the workload, before new pods get the rest of its size."""
    applied, sizes = observation.annotations.applied, raised_limits(observation)
    assert applied is not None
    raised = {name: size for name, size in sizes.items() if size != applied.sizes[name]}
    noted = msgspec.structs.replace(
        observation.annotations, applied=msgspec.structs.replace(applied, sizes=dict(sizes))
    )
    why = f"new pods keep the memory limit of their template, which Kubernetes before 1.34 does not lower in place: {format_sizes(raised)}"
    return [WriteAnnotations(noted), EmitEvent("Normal", "MemoryLimitKept", why)]


def waits_for_boosts(observation: Observation) -> bool:
    """Return whether pods are starting with more CPU: no change starts meanwhile, because a boosted size is not a
    size to return to.
    """
    # OOM killed pods do not wait for one that starts.
    return sync_work(observation).recheck_at is not None and not observation.desired.is_urgent


def wait_for_boosts(observation: Observation) -> list[ChangeAction]:
    """Wait until the first startup boost is over."""
    until = sync_work(observation).recheck_at
    assert until is not None
    return [Wait(until, "pods are starting with more CPU (updateStrategy.startupBoost)")]


def sync_during_change(observation: Observation) -> Iterator[ChangeAction]:
    """Yield the resizes of pods created during a change that does not, or no longer, cover all pods.

    They would otherwise keep the template's size while canaries are observed or a revert runs. A promoted
    change gives its size to every pod itself.
    """
    change = observation.annotations.change
    if change is None or change.phase not in {Phase.CANARY, Phase.REVERTING}:
        return
    if not observation.pod_sync.enabled:
        return
    assignment, rule = _build_assignment(observation), observation.strategy.startup_boost
    limits = observation.desired.size_limits
    for pod in observation.live:
        # Those pods get another size from the change itself, or from its revert.
        is_reverted = change.phase is Phase.REVERTING and has_size(pod, change.after)
        if pod.name in change.canaries or is_reverted:
            continue
        boosted = rule and is_boosted(
            pod, assignment.boostable_size(pod), rule, now=observation.now, limits=limits
        )
        if (
            assignment.needs_sync(pod)
            and not boosted
            and (action := _resize(observation, pod, assignment.assigned_size(pod)))
        ):
            yield action


@evaluated_once
def unsynced_pods(observation: Observation) -> dict[str, Pod]:
    """Return the pods that pod sync cannot bring to their size for now, by the reason to report."""
    if not observation.pod_sync.enabled:
        return {}
    assignment, found = _build_assignment(observation), {}
    for pod in observation.live:
        if observation.now - pod.created > DEADLINES.pod_sync and assignment.needs_sync(pod):
            why = observation.rejection(pod.uid, assignment.assigned_size(pod))
            why = why or (
                "it crashes before it can be resized" if is_crash_looping(pod) else RESTART_REQUIRED
            )
            found[f"Pod {pod.name} still has the size of its template: {why}"] = pod
    return found


def report_unsynced(observation: Observation) -> list[ChangeAction]:
    """Report pods that do not have the size of the workload although there is nothing else to do."""
    why = next(iter(unsynced_pods(observation)), "")
    return [Wait(observation.now + DEADLINES.recheck, why)] if why else []


def pods_needing_restart(observation: Observation) -> list[Pod]:
    """Return the pods that only a change can bring to their size: it may restart containers where the policy allows it."""
    if not observation.strategy.allow_recreate:
        return []
    return [pod for why, pod in unsynced_pods(observation).items() if why.endswith(RESTART_REQUIRED)]


def _build_assignment(observation: Observation) -> Assignment:
    return Assignment.from_annotations(
        observation.annotations,
        observation.template_sizes,
        excluded=observation.desired.excluded_containers,
    )


def _resize(observation: Observation, pod: Pod, wanted: Sizes) -> ResizePod | None:
    """Return the resize of a pod that needs one and can have it now without a restart."""
    current = container_sizes(pod.containers)
    if has_size(pod, wanted) or is_crash_looping(pod) or observation.rejection(pod.uid, wanted):
        return None
    if not is_restart_free(pod.containers, current, wanted):
        return None
    # During a change, whose sizes stay as they are: once it is over, the limit is raised first.
    if not list_resizable(observation, [pod], wanted):
        return None
    return ResizePod(pod, wanted, Priority.INCREASE if has_increase(current, wanted) else Priority.DECREASE)


def _wanted_size(
    observation: Observation, assignment: Assignment, pod: Pod
) -> tuple[Sizes | None, int | None]:
    now, rule, limits = observation.now, observation.strategy.startup_boost, observation.desired.size_limits
    boostable = assignment.boostable_size(pod) if rule else {}
    boosted = rule and boostable and is_boosted(pod, boostable, rule, now=now, limits=limits)
    if assignment.needs_sync(pod) and not boosted:
        return assignment.assigned_size(pod), None
    if not rule or not boostable:
        return None, None
    found = decide_boost(pod, boostable, rule, now=now, limits=limits)
    return found.sizes, found.recheck_at
