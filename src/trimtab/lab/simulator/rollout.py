"""The workload controller: keep the wanted number of pods of the current template, a few at a time.

A Deployment replaces a quarter of its pods at once, with a quarter more than it has; a StatefulSet one after another, and a
DaemonSet too, on each node. Jobs end by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from trimtab.lab.simulator.objects import SimulatedPod, SimulatedWorkload

if TYPE_CHECKING:
    from trimtab.lab.simulator.world import SimulatedWorld

_MAX_SURGE_SHARE = 0.25


def reconcile_workload(world: SimulatedWorld, workload: SimulatedWorkload) -> None:
    """Create and delete pods of a workload, as many as its update strategy permits at once."""
    if workload.spec.kind == "DaemonSet":
        _reconcile_daemon_set(world, workload)
        return
    wanted = workload.replicas
    if workload.paused or workload.is_batch:
        _scale_only(world, workload)
        return
    old = workload.outdated_pods if workload.rolls_out else []
    if workload.spec.update == "Recreate":
        for pod in old:
            world.delete_pod(pod)
        old = []
    ordered = workload.spec.kind == "StatefulSet"
    surge = math.ceil(wanted * _MAX_SURGE_SHARE) if old and not ordered else 0
    new = len(workload.pods) - len(old)
    for _ in range(min(wanted - new, wanted + surge - len(workload.pods))):
        if world.create_pod(workload) is None:
            break
    surplus = len(workload.pods) - wanted - surge
    for pod in _order_for_deletion(workload, list(workload.pods.values()))[: max(surplus, 0)]:
        world.delete_pod(pod)
    _delete_outdated(world, workload, old)


def _delete_outdated(world: SimulatedWorld, workload: SimulatedWorkload, old: Sequence[SimulatedPod]) -> None:
    """Delete as many pods of the old template as may be missing."""
    wanted, ordered = workload.replicas, workload.spec.kind == "StatefulSet"
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


def _reconcile_daemon_set(world: SimulatedWorld, workload: SimulatedWorkload) -> None:
    """Keep a pod on each node, and replace one after another."""
    nodes = [int(node) for node in np.flatnonzero(world.nodes.active)]
    workload.replicas = len(nodes)
    outdated = workload.outdated_pods if workload.rolls_out else []
    others_ready = all(pod.ready for pod in workload.pods.values() if pod not in outdated)
    for pod in outdated:
        if others_ready or not pod.ready:
            world.delete_pod(pod)
            if pod.ready:
                break
    served = {pod.bound_node for pod in workload.pods.values()}
    for node in nodes:
        if node not in served and world.create_pod(workload, bound_node=node) is None:
            break


def _scale_only(world: SimulatedWorld, workload: SimulatedWorkload) -> None:
    """Keep the number of pods without a rollout, as while it is paused; pods of the old template stay."""
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
