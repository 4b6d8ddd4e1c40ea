"""The limits that namespaces, nodes and autoscalers place on a workload's resources.

Many workloads share a namespace and the nodes, so these limits are computed once per cycle and then looked up.
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
    """A snapshot of the limits of all namespaces and nodes."""

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
        """The requests, on each node, of every DaemonSet that runs on all nodes, keyed by uid."""
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
        """Return the constraints on a workload that runs this many replicas."""
        return Constraints(
            replicas=max(replicas, 1),
            ranges=self._ranges.get(workload.namespace, _NO_LIMITS),
            quota=self._quotas.get(workload.namespace, _NO_QUOTA),
            # A DaemonSet competes for a node's capacity with the other DaemonSets only, not with its own current requests.
            nodes=self._largest_nodes_without(workload.uid)
            if workload.uid in self._daemonset_requests
            else self._largest_nodes,
            autoscalers=tuple(target for hpa in hpas for target in utilisation_targets(hpa)),
        )

    def _largest_nodes_without(self, uid: str) -> tuple[NodeResources, ...]:
        """Return the capacity of the largest nodes that remains after all DaemonSets except the one with this uid."""
        others = [taken for owner, taken in self._daemonset_requests.items() if owner != uid]
        cpu, memory = sum(each.cpu for each in others), sum(each.memory for each in others)
        return largest_node_capacities(self._all_nodes, NodeResources(cpu=cpu, memory=memory))


def largest_node(nodes: Iterable[Node]) -> NodeResources | None:
    """Return the largest CPU and the largest memory capacity of any node; None if no node is known."""
    capacities = [node.capacity for node in nodes]
    if not capacities:
        return None
    return NodeResources(
        cpu=max(capacity.cpu for capacity in capacities),
        memory=max(capacity.memory for capacity in capacities),
    )


def _group_by_namespace(objects: Iterable[T]) -> dict[str, list[T]]:
    by_namespace: dict[str, list[T]] = {}
    for each in objects:
        by_namespace.setdefault(each.namespace, []).append(each)
    return by_namespace
