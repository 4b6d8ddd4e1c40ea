"""Add and remove nodes as cluster autoscalers do: without one, smaller requests would not lower the number of nodes.

The defaults are those of Kubernetes' Cluster Autoscaler: a pod that fits nowhere brings a node back after a delay; a
node with less than half of its capacity requested, whose pods all fit elsewhere, is drained, one at a time, and its
pods are recreated on other nodes. A deferred resize brings no node, as on a real cluster. There are never more nodes
than the scenario has.
"""

from __future__ import annotations

import numpy as np

from trimtab.lab.simulator.objects import SimulatedPod, sum_requests
from trimtab.lab.simulator.physics import UNSCHEDULED
from trimtab.lab.simulator.scheduler import count_packed_nodes, select_node
from trimtab.lab.simulator.world import SimulatedWorld

COOLDOWN = 600.0
"""Seconds after a node came or went until the next may go."""
NODE_START_DELAY = 120.0
"""The seconds from the request for a node until the node is ready."""
SCALE_DOWN_THRESHOLD = 0.5
"""The share of a node's CPU or memory that is asked for, from which on it stays."""


class Autoscaler:
    """Looks at a world after every step."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._changed_at = world.now
        self._pending_since: float | None = None

    def reconcile(self) -> None:
        world = self._world
        # A pod that is too large for any node would otherwise bring nodes without end.
        if any(self._fits_empty_node(pod) for pod in world.pending.values()) and not world.nodes.active.all():
            since = self._pending_since = self._pending_since or world.now
            if world.now - since >= NODE_START_DELAY:
                self._add_nodes()
            return
        self._pending_since = None
        # The Cluster Autoscaler waits as long after it added a node, so that nodes do not come and go with each
        # burst.
        if world.now - self._changed_at >= COOLDOWN:
            self._remove_node()

    def _add_nodes(self) -> None:
        world, pool = self._world, self._world.scenario.pools[0]
        sizes = np.array([sum_requests(pod.applied) for pod in world.pending.values()], np.float64)
        needed = count_packed_nodes(
            sizes[:, 0],
            sizes[:, 1],
            node_cpu=pool.allocatable_cpu * 1000,
            node_memory=pool.allocatable_memory,
            node_pods=pool.pods,
        )
        for node in np.flatnonzero(~world.nodes.active)[:needed].tolist():
            world.nodes.activate(node)
            self._changed_at = world.now
        world.retry_pending()
        self._pending_since = None

    def _fits_empty_node(self, pod: SimulatedPod) -> bool:
        return self._world.nodes.fits_empty_node(0, *sum_requests(pod.applied))

    def _remove_node(self) -> None:
        world, nodes = self._world, self._world.nodes
        # Like the Cluster Autoscaler, which takes the larger of both: a node full of memory is in use even if
        # its CPUs idle.
        shares = np.maximum(
            1 - nodes.cpu_left / nodes.allocatable_cpu, 1 - nodes.memory_left / nodes.allocatable_memory
        )
        candidates = np.flatnonzero(nodes.active)
        # The pods of the last node could go nowhere.
        if len(candidates) < 2:
            return
        node = int(candidates[np.argmin(shares[candidates])])
        if shares[node] >= SCALE_DOWN_THRESHOLD:
            return
        pods = [pod for pod in world.pods.values() if pod.node == node]
        if not self._fits_elsewhere(pods, without=node):
            return
        nodes.deactivate(node)
        self._changed_at = world.now
        for pod in pods:
            world.record_event(pod.workload, pod.name, "Normal", "Drained", "the node is no longer needed")
            world.delete_pod(pod)
        world.process_due(world.control_time)

    def _fits_elsewhere(self, pods: list[SimulatedPod], *, without: int) -> bool:
        """Return whether all of these pods fit on other nodes."""
        nodes = self._world.nodes
        cpu, memory, pods_left = nodes.cpu_left.copy(), nodes.memory_left.copy(), nodes.pods_left.copy()
        pods_left[without] = 0
        # Largest first: small pods would break up the space that only a large one cannot find elsewhere.
        for size in sorted((sum_requests(pod.applied) for pod in pods), reverse=True):
            node = select_node(
                *size, cpu, memory, pods_left, nodes.allocatable_cpu, nodes.allocatable_memory, True
            )
            if node == UNSCHEDULED:
                return False
            cpu[node] -= size[0]
            memory[node] -= size[1]
            pods_left[node] -= 1
        return True
