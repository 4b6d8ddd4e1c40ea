"""Adds and removes nodes, as cluster autoscalers do: without one, smaller requests would leave as many nodes as before.

By the defaults of Kubernetes' own: a pod that fits nowhere brings a node back, which takes a while; a node of which less
than half is asked for, and whose pods would all fit on the others, is emptied, one at a time. Its pods are made anew
elsewhere. A resize that is deferred for want of room brings no node, as it does not there. There are never more nodes
than the scene has.
"""

from __future__ import annotations

import numpy as np

from trimtab.lab.simulator.objects import SimulatedPod, asked
from trimtab.lab.simulator.physics import NOWHERE
from trimtab.lab.simulator.scheduler import best_node, nodes_needed
from trimtab.lab.simulator.world import World

CALM = 600.0
"""Seconds after a node came or went until the next may go."""
STARTS_IN = 120.0
"""Seconds from the wish for a node to the node."""
HALF_EMPTY = 0.5
"""The share of a node's CPU or memory that is asked for, from which on it stays."""


class Autoscaler:
    """Looks at a world after every step."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._changed_at = world.now
        self._wanted_since: float | None = None

    def look(self) -> None:
        world = self._world
        if any(self._could_fit(pod) for pod in world.pending.values()) and not world.ground.open.all():
            since = self._wanted_since = self._wanted_since or world.now
            if world.now - since >= STARTS_IN:
                self._add()
            return
        self._wanted_since = None
        if world.now - self._changed_at >= CALM:
            self._remove()

    def _add(self) -> None:
        world, pool = self._world, self._world.scene.pools[0]
        sizes = np.array([asked(pod.applied) for pod in world.pending.values()], np.float64)
        needed = nodes_needed(
            sizes[:, 0],
            sizes[:, 1],
            node_cpu=pool.allocatable_cpu * 1000,
            node_memory=pool.allocatable_memory,
            node_pods=pool.pods,
        )
        for node in np.flatnonzero(~world.ground.open)[:needed].tolist():
            world.ground.start(node)
            self._changed_at = world.now
        world.retry()
        self._wanted_since = None

    def _could_fit(self, pod: SimulatedPod) -> bool:
        return self._world.ground.could_ever(0, *asked(pod.applied))

    def _remove(self) -> None:
        world, ground = self._world, self._world.ground
        shares = np.maximum(
            1 - ground.cpu_left / ground.allocatable_cpu, 1 - ground.memory_left / ground.allocatable_memory
        )
        candidates = np.flatnonzero(ground.open)
        if len(candidates) < 2:
            return
        node = int(candidates[np.argmin(shares[candidates])])
        if shares[node] >= HALF_EMPTY:
            return
        pods = [pod for pod in world.pods.values() if pod.node == node]
        if not self._fit(pods, without=node):
            return
        ground.stop(node)
        self._changed_at = world.now
        for pod in pods:
            world.tell(pod.workload, pod.name, "Normal", "Drained", "its node is not needed any more")
            world.delete(pod)
        world.settle(world.time)

    def _fit(self, pods: list[SimulatedPod], *, without: int) -> bool:
        """Whether all of them find a place on other nodes."""
        ground = self._world.ground
        cpu, memory, room = ground.cpu_left.copy(), ground.memory_left.copy(), ground.pods_left.copy()
        room[without] = 0
        for size in sorted((asked(pod.applied) for pod in pods), reverse=True):
            node = best_node(
                *size, cpu, memory, room, ground.allocatable_cpu, ground.allocatable_memory, True
            )
            if node == NOWHERE:
                return False
            cpu[node] -= size[0]
            memory[node] -= size[1]
            room[node] -= 1
        return True
