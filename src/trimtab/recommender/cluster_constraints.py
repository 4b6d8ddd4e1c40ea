"""What stands around a workload, read from the live picture of the cluster: limits, quota, nodes, autoscalers.

What a namespace and the nodes allow is the same for many workloads, so it is worked out once a turn and looked up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from trimtab.kube.kinds.hpas import HorizontalPodAutoscaler
from trimtab.kube.kinds.nodes import Node, NodeResources
from trimtab.kube.kinds.pod_requests import template_requests
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.quotas import LimitRange, ResourceQuota
from trimtab.kube.kinds.workloads import Workload
from trimtab.sizing.constraints import (
    AllowedRanges,
    Constraints,
    largest_node_capacities,
    merge_limit_ranges,
    remaining_quota,
    utilisation_targets,
)

T = TypeVar("T", LimitRange, ResourceQuota)

_NO_LIMITS = AllowedRanges()
_NO_QUOTA = Resources()


class ClusterConstraints:
    """All namespaces and nodes as they are at one time."""

    def __init__(
        self,
        *,
        nodes: Iterable[Node] = (),
        daemon_sets: Iterable[Workload] = (),
        limit_ranges: Iterable[LimitRange] = (),
        quotas: Iterable[ResourceQuota] = (),
    ) -> None:
        self._all_nodes = list(nodes)
        self._daemonset_requests = {
            daemons.uid: template_requests(daemons)
            for daemons in daemon_sets
            if daemons.replicas >= len(self._all_nodes)
        }
        """What each DaemonSet that runs on every node takes of each."""
        self._largest_nodes = self._largest_nodes_without("")
        self._ranges = {
            space: merge_limit_ranges(theirs) for space, theirs in _group_by_namespace(limit_ranges).items()
        }
        self._quotas = {
            space: remaining_quota(theirs) for space, theirs in _group_by_namespace(quotas).items()
        }

    def constraints_for(
        self, workload: Workload, *, replicas: int, hpas: Iterable[HorizontalPodAutoscaler]
    ) -> Constraints:
        return Constraints(
            replicas=max(replicas, 1),
            ranges=self._ranges.get(workload.namespace, _NO_LIMITS),
            quota=self._quotas.get(workload.namespace, _NO_QUOTA),
            # What a DaemonSet requests itself is what is to be sized: only the others take room from it.
            nodes=self._largest_nodes_without(workload.uid)
            if workload.uid in self._daemonset_requests
            else self._largest_nodes,
            autoscalers=tuple(target for hpa in hpas for target in utilisation_targets(hpa)),
        )

    def _largest_nodes_without(self, uid: str) -> tuple[NodeResources, ...]:
        """What the DaemonSets leave of the largest nodes, all but the one with this uid."""
        others = [taken for owner, taken in self._daemonset_requests.items() if owner != uid]
        cpu, memory = sum(each.cpu for each in others), sum(each.memory for each in others)
        return largest_node_capacities(self._all_nodes, NodeResources(cpu=cpu, memory=memory))


def largest_node(nodes: Iterable[Node]) -> NodeResources | None:
    """The most CPU and the most memory that a node has; None where no node is known."""
    rooms = [node.capacity for node in nodes]
    if not rooms:
        return None
    return NodeResources(cpu=max(room.cpu for room in rooms), memory=max(room.memory for room in rooms))


def _group_by_namespace(found: Iterable[T]) -> dict[str, list[T]]:
    sorted_out: dict[str, list[T]] = {}
    for each in found:
        sorted_out.setdefault(each.namespace, []).append(each)
    return sorted_out
