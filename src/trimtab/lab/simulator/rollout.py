"""The workload controller: keep the wanted number of pods of the current template, a few at a time.

A Deployment replaces a quarter of its pods at once, with a quarter more than it has; a StatefulSet one after another.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trimtab.lab.simulator.objects import SimulatedPod, SimulatedWorkload

if TYPE_CHECKING:
    from trimtab.lab.simulator.world import SimulatedWorld

_MAX_SURGE_SHARE = 0.25


def reconcile_workload(world: SimulatedWorld, workload: SimulatedWorkload) -> None:
    """Create and delete pods of a workload, as many as its update strategy permits at once."""
    wanted = workload.replicas
    if workload.paused:
        _scale_paused(world, workload)
        return
    old = workload.outdated_pods if workload.spec.update == "RollingUpdate" else []
    ordered = workload.spec.kind == "StatefulSet"
    surge = math.ceil(wanted * _MAX_SURGE_SHARE) if old and not ordered else 0
    new = len(workload.pods) - len(old)
    for _ in range(min(wanted - new, wanted + surge - len(workload.pods))):
        if world.create_pod(workload) is None:
            break
    surplus = len(workload.pods) - wanted - surge
    for pod in _order_for_deletion(workload, list(workload.pods.values()))[: max(surplus, 0)]:
        world.delete_pod(pod)
    missing = 1 if ordered else math.floor(wanted * _MAX_SURGE_SHARE)
    # Deleting a pod that is not ready costs no availability; of the ready ones, enough must remain.
    may_go = workload.ready - (wanted - missing)
    for pod in _order_for_deletion(workload, [pod for pod in old if pod.uid in world.pods]):
        if pod.ready:
            if may_go <= 0:
                continue
            may_go -= 1
        world.delete_pod(pod)
        if ordered:
            return


def _scale_paused(world: SimulatedWorld, workload: SimulatedWorkload) -> None:
    """Keep the number of pods while a rollout is paused; pods of the old template stay."""
    for _ in range(workload.replicas - len(workload.pods)):
        if world.create_pod(workload) is None:
            break
    for pod in _order_for_deletion(workload, list(workload.pods.values()))[
        : max(len(workload.pods) - workload.replicas, 0)
    ]:
        world.delete_pod(pod)


def _order_for_deletion(workload: SimulatedWorkload, pods: list[SimulatedPod]) -> list[SimulatedPod]:
    """Order pods that are not ready first, then the youngest; pods of a StatefulSet by descending number."""
    if workload.spec.kind == "StatefulSet":
        return sorted(pods, key=lambda pod: (len(pod.name), pod.name), reverse=True)
    return sorted(pods, key=lambda pod: (not pod.ready, pod.created), reverse=True)
