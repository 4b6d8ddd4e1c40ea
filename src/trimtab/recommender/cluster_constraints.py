"""What stands around a workload, read from the live picture of the cluster: limits, quota, nodes, autoscalers.

What a namespace and the nodes allow is the same for many workloads, so it is worked out once a turn and looked up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from trimtab.kube.kinds.hpas import Hpa
from trimtab.kube.kinds.nodes import Node, Room
from trimtab.kube.kinds.pod_requests import template_requests
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.quotas import LimitRange, Quota
from trimtab.kube.kinds.workloads import Workload
from trimtab.sizing.constraints import (
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
        self._machines = list(nodes)
        self._taken = {
            daemons.uid: template_requests(daemons)
            for daemons in daemon_sets
            if daemons.replicas >= len(self._machines)
        }
        """What each DaemonSet that runs on every node takes of each."""
        self._nodes = self._left_beside("")
        self._ranges = {space: ranges(theirs) for space, theirs in _by_namespace(limit_ranges).items()}
        self._quotas = {space: quota_left(theirs) for space, theirs in _by_namespace(quotas).items()}

    def around(self, workload: Workload, *, replicas: int, hpas: Iterable[Hpa]) -> Surroundings:
        return Surroundings(
            replicas=max(replicas, 1),
            ranges=self._ranges.get(workload.namespace, _NO_LIMITS),
            quota=self._quotas.get(workload.namespace, _NO_QUOTA),
            # What a DaemonSet requests itself is what is to be sized: only the others take room from it.
            nodes=self._left_beside(workload.uid) if workload.uid in self._taken else self._nodes,
            autoscalers=tuple(target for hpa in hpas for target in utilisation_targets(hpa)),
        )

    def _left_beside(self, uid: str) -> tuple[Room, ...]:
        """What the DaemonSets leave of the largest nodes, all but the one with this uid."""
        others = [taken for owner, taken in self._taken.items() if owner != uid]
        cpu, memory = sum(each.cpu for each in others), sum(each.memory for each in others)
        return largest_rooms(self._machines, Room(cpu=cpu, memory=memory))


def largest_machine(nodes: Iterable[Node]) -> Room | None:
    """The most CPU and the most memory that a node has; None where no node is known."""
    rooms = [node.capacity for node in nodes]
    if not rooms:
        return None
    return Room(cpu=max(room.cpu for room in rooms), memory=max(room.memory for room in rooms))


def _by_namespace(found: Iterable[T]) -> dict[str, list[T]]:
    sorted_out: dict[str, list[T]] = {}
    for each in found:
        sorted_out.setdefault(each.namespace, []).append(each)
    return sorted_out
