"""The nodes of a simulated cluster, and the requests of pods on each, in whole millicores and bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.kube.kinds.nodes import Node, NodeResources
from trimtab.lab.simulator.objects import derive_uid
from trimtab.lab.simulator.physics import UNSCHEDULED, Nodes
from trimtab.lab.simulator.scenario import NodePool
from trimtab.lab.simulator.scheduler import Counts, select_node


class SimulatedNodes:
    """Arrays of nodes; requests are booked when a pod is placed, and never more than a node has."""

    def __init__(self, pools: Sequence[NodePool], *, pack: bool = False) -> None:
        everyone = [pool for pool in pools for _ in range(pool.count)]
        self.pools = tuple(pools)
        self.names = [f"{pool.name}-{place}" for pool in pools for place in range(pool.count)]
        self.physical = Nodes.from_capacity(
            np.array([pool.cpu for pool in everyone]), np.array([pool.memory for pool in everyone])
        )
        self.allocatable_cpu: Counts = np.array([pool.allocatable_cpu * 1000 for pool in everyone], np.int64)
        self.allocatable_memory: Counts = np.array([pool.allocatable_memory for pool in everyone], np.int64)
        self.cpu_left = self.allocatable_cpu.copy()
        self.memory_left = self.allocatable_memory.copy()
        self.pods_left: Counts = np.array([pool.pods for pool in everyone], np.int64)
        self.active = np.ones(len(everyone), np.bool_)
        """True if a node exists; a missing node has no capacity for pods."""
        self._pod_capacity = self.pods_left.copy()
        self._pack = pack

    def schedule_pod(self, cpu: int, memory: int) -> int:
        """Find a node for a pod with these requests, and reserve them there; return -1 if it fits on none."""
        node = int(
            select_node(
                cpu,
                memory,
                self.cpu_left,
                self.memory_left,
                self.pods_left,
                self.allocatable_cpu,
                self.allocatable_memory,
                self._pack,
            )
        )
        if node != UNSCHEDULED:
            self.pods_left[node] -= 1
            self.reserve(node, cpu, memory)
        return node

    def bind_pod(self, node: int, cpu: int, memory: int) -> bool:
        """Reserve the requests of a DaemonSet's pod on its node, cordoned or not; return False if they do not fit there."""
        if not self.active[node] or not self.has_capacity(node, cpu, memory):
            return False
        self.pods_left[node] -= 1
        self.reserve(node, cpu, memory)
        return True

    def activate(self, node: int) -> None:
        """Add a node that was removed."""
        self.active[node] = True
        self.pods_left[node] = self._pod_capacity[node]

    def deactivate(self, node: int) -> None:
        """Remove a node: it takes no more pods, and the caller deletes those that it has."""
        self.active[node] = False
        self.pods_left[node] = -self._pod_capacity[node]

    def cordon(self, node: int) -> None:
        """Have a node take no more pods; those that it has stay."""
        self.pods_left[node] -= self._pod_capacity[node]

    def uncordon(self, node: int) -> None:
        """Have a node take pods again."""
        self.pods_left[node] += self._pod_capacity[node]

    def remove_pod(self, node: int, cpu: int, memory: int) -> None:
        self.pods_left[node] += 1
        self.reserve(node, -cpu, -memory)

    def reserve(self, node: int, cpu: int, memory: int) -> None:
        """Reserve more resources on a node, or with negative amounts fewer."""
        self.cpu_left[node] -= cpu
        self.memory_left[node] -= memory

    def has_capacity(self, node: int, cpu: int, memory: int) -> bool:
        """Return whether the node can hold so much more; a request for no more always fits."""
        return bool(
            (cpu <= 0 or cpu <= self.cpu_left[node]) and (memory <= 0 or memory <= self.memory_left[node])
        )

    def fits_empty_node(self, node: int, cpu: int, memory: int) -> bool:
        """Return whether a pod of this size would fit on an empty node."""
        return bool(cpu <= self.allocatable_cpu[node] and memory <= self.allocatable_memory[node])

    def to_records(self) -> list[Node]:
        """Return the nodes as the records that informers keep."""
        pools = [pool for pool in self.pools for _ in range(pool.count)]
        return [
            Node(
                name=name,
                uid=derive_uid("node", name),
                version=1,
                capacity=NodeResources(cpu=int(pool.cpu * 1000), memory=int(pool.memory), pods=pool.pods),
                allocatable=NodeResources(
                    cpu=int(pool.allocatable_cpu * 1000), memory=int(pool.allocatable_memory), pods=pool.pods
                ),
                ready=True,
                unschedulable=False,
                created=0,
                labels=(("kubernetes.io/hostname", name),),
                annotations=(),
            )
            for name, pool in zip(self.names, pools, strict=True)
        ]
