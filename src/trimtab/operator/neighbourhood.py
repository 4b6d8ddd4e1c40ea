"""What stands around a workload, read from the live picture of the cluster: limits, quota, nodes, autoscalers.

What a namespace and the nodes allow is the same for many workloads, so it is worked out once a turn and looked up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from trimtab.kube.hpas import Hpa
from trimtab.kube.limits import LimitRange, Quota
from trimtab.kube.nodes import Node, Room
from trimtab.kube.pods import Resources
from trimtab.kube.workloads import Workload
from trimtab.sizing.surroundings import (
    Ranges,
    Surroundings,
    largest_rooms,
    quota_left,
    ranges,
    utilisation_targets,
)

T = TypeVar("T", LimitRange, Quota)

_NO_LIMITS = Ranges()
_NO_QUOTA = Resources()


class Neighbourhood:
    """All namespaces and nodes as they are at one time."""

    def __init__(
        self,
        *,
        nodes: Iterable[Node] = (),
        daemon_sets: Iterable[Workload] = (),
        limit_ranges: Iterable[LimitRange] = (),
        quotas: Iterable[Quota] = (),
    ) -> None:
        found = list(nodes)
        self._nodes = largest_rooms(found, _everywhere(daemon_sets, len(found)))
        self._ranges = {space: ranges(theirs) for space, theirs in _by_namespace(limit_ranges).items()}
        self._quotas = {space: quota_left(theirs) for space, theirs in _by_namespace(quotas).items()}

    def around(self, workload: Workload, *, replicas: int, hpas: Iterable[Hpa]) -> Surroundings:
        return Surroundings(
            replicas=max(replicas, 1),
            ranges=self._ranges.get(workload.namespace, _NO_LIMITS),
            quota=self._quotas.get(workload.namespace, _NO_QUOTA),
            nodes=self._nodes,
            autoscalers=tuple(target for hpa in hpas for target in utilisation_targets(hpa)),
        )


def largest_machine(nodes: Iterable[Node]) -> Room | None:
    """The most CPU and the most memory that a node has; None where no node is known."""
    rooms = [node.capacity for node in nodes]
    if not rooms:
        return None
    return Room(cpu=max(room.cpu for room in rooms), memory=max(room.memory for room in rooms))


def _everywhere(daemon_sets: Iterable[Workload], nodes: int) -> Room:
    """What the DaemonSets that run on every node take of each."""
    cpu = memory = 0
    for daemons in daemon_sets:
        if daemons.replicas >= nodes:
            asked = [each.resources for each in daemons.containers if each.role != "init"]
            cpu += sum(resources.cpu_request or 0 for resources in asked)
            memory += sum(resources.memory_request or 0 for resources in asked)
    return Room(cpu=cpu, memory=memory)


def _by_namespace(found: Iterable[T]) -> dict[str, list[T]]:
    sorted_out: dict[str, list[T]] = {}
    for each in found:
        sorted_out.setdefault(each.namespace, []).append(each)
    return sorted_out
