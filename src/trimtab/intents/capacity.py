"""Free capacity of nodes and quotas, and the changes of a workload that fit into it.

This is a ledger for one cycle: capacity that a plan reserves is not available to later plans. Capacity that a plan
releases does not count until it is observed, because the plan may fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import inf

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.state import TargetState

Floats = npt.NDArray[np.float64]

_TOLERANCE = 1e-9


class FreeResources(msgspec.Struct, frozen=True):
    """The free resources of a node or a quota."""

    cpu: float = inf
    memory: float = inf
    pods: float = inf


class Capacity:
    def __init__(
        self, nodes: Mapping[str, FreeResources], quotas: Mapping[str, FreeResources] | None = None
    ) -> None:
        """Start with the free resources of nodes, and of the quota or cap of each namespace; other namespaces are
        unlimited.
        """
        self._node_rows = {name: row for row, name in enumerate(nodes)}
        rows = [(each.cpu, each.memory, each.pods) for each in nodes.values()]
        self._nodes: Floats = np.array(rows, dtype=np.float64).reshape(-1, 3)
        self._row_cache: dict[frozenset[str], npt.NDArray[np.intp]] = {}
        self._quotas = {name: [each.cpu, each.memory, each.pods] for name, each in (quotas or {}).items()}

    def constrain(self, limits: PlanConstraints, state: TargetState, namespace: str) -> PlanConstraints:
        """Return the constraints, narrowed to the capacity that is free now."""
        cpu, memory, pods = self._quotas.get(namespace, (inf, inf, inf))
        in_place = self._growth_in_place(state)
        return replace(
            limits,
            extra_cpu=max(0.0, min(limits.extra_cpu, cpu)),
            extra_memory=max(0.0, min(limits.extra_memory, memory)),
            extra_pods=max(0.0, min(limits.extra_pods, pods, self._free_pod_slots(state))),
            extra_cpu_in_place=min(limits.extra_cpu_in_place, in_place[0]),
            extra_memory_in_place=min(limits.extra_memory_in_place, in_place[1]),
        )

    @property
    def nodes(self) -> Iterable[str]:
        return self._node_rows

    def free_cpu(self, node: str) -> float:
        """Return the free cores of a node; 0 for an unknown node."""
        row = self._node_rows.get(node)
        return 0.0 if row is None else float(self._nodes[row, 0])

    def free_quota_cpu(self, namespace: str) -> float:
        return self._quotas.get(namespace, [inf])[0]

    def free_memory(self, node: str) -> float:
        """Return the free bytes of a node; 0 for an unknown node."""
        row = self._node_rows.get(node)
        return 0.0 if row is None else float(self._nodes[row, 1])

    def free_quota_memory(self, namespace: str) -> float:
        return self._quotas.get(namespace, [inf, inf])[1]

    def has_quota(self, namespace: str) -> bool:
        return namespace in self._quotas

    def fits(self, before: TargetState, after: TargetState, namespace: str) -> bool:
        """Return whether a plan fits: first the pods that grow on their nodes, then new pods with the new size."""
        return self._free_after(before, after, namespace) is not None

    def reserve(self, before: TargetState, after: TargetState, namespace: str) -> None:
        """Reserve what a plan needs; it must fit."""
        free_after = self._free_after(before, after, namespace)
        assert free_after is not None
        self._nodes = free_after
        quota = self._quotas.get(namespace)
        if quota is not None:
            for row, more in enumerate(additional_requests(before, after)):
                quota[row] -= max(0.0, more)

    def _growth_in_place(self, state: TargetState) -> tuple[float, float]:
        """Return the CPU and memory by which each pod can grow, with each node's free capacity divided by its
        pods.
        """
        counts = Counter(pod.node for pod in state.pods if pod.node in self._node_rows)
        if not counts:
            return inf, inf
        rows = np.fromiter((self._node_rows[node] for node in counts), dtype=np.intp)
        share = self._nodes[rows, :2] / np.fromiter(counts.values(), dtype=np.float64)[:, None]
        cpu, memory = np.maximum(0.0, share.min(axis=0)).tolist()
        return cpu, memory

    def _free_pod_slots(self, state: TargetState) -> float:
        """Return the number of additional pods of this size that the nodes can take."""
        if not self._node_rows:
            return inf
        share = self._pods_per_node(self._nodes, state, *state.requests_per_pod())
        return float(np.maximum(0.0, np.floor(share)).sum())

    def _free_after(self, before: TargetState, after: TargetState, namespace: str) -> Floats | None:
        quota = self._quotas.get(namespace, (inf, inf, inf))
        if any(
            more > 0 and more > left * (1 + _TOLERANCE)
            for more, left in zip(additional_requests(before, after), quota, strict=True)
        ):
            return None
        nodes = self._nodes.copy()
        cpu, memory = after.requests_per_pod()
        cpu_was, memory_was = before.requests_per_pod()
        for pod in after.pods:
            row = self._node_rows.get(pod.node)
            if row is not None:
                nodes[row, 0] -= max(0.0, cpu - cpu_was)
                nodes[row, 1] -= max(0.0, memory - memory_was)
        if (nodes < self._nodes.clip(max=0.0) - _TOLERANCE).any():
            return None
        for _ in range(after.replicas - before.replicas if self._node_rows else 0):
            # Use the node with the most free capacity, as the scheduler does by default.
            share = self._pods_per_node(nodes, before, cpu, memory)
            row = int(share.argmax())
            if share[row] < 1.0 - _TOLERANCE:
                return None
            nodes[row] -= (cpu, memory, 1.0)
        return nodes

    def _pods_per_node(self, nodes: Floats, state: TargetState, cpu: float, memory: float) -> Floats:
        """Return the number of pods of a size that each node can take, as a fraction; 0 for excluded nodes."""
        share = np.minimum(
            np.minimum(nodes[:, 0] / max(cpu, 1e-6), nodes[:, 1] / max(memory, 1.0)),
            np.minimum(nodes[:, 2], 1e6),
        )
        share[self._rows_of_nodes(state.excluded_nodes)] = 0.0
        return share

    def _rows_of_nodes(self, names: frozenset[str]) -> npt.NDArray[np.intp]:
        """Return the rows of nodes, cached because many workloads exclude the same nodes."""
        if names not in self._row_cache:
            rows = [row for name, row in self._node_rows.items() if name in names]
            self._row_cache[names] = np.array(rows, dtype=np.intp)
        return self._row_cache[names]


def additional_requests(before: TargetState, after: TargetState) -> tuple[float, float, float]:
    """Return the cores, bytes and pods that a change requests in addition."""
    cpu, memory = after.requests_per_pod()
    cpu_was, memory_was = before.requests_per_pod()
    return (
        cpu * after.replicas - cpu_was * before.replicas,
        memory * after.replicas - memory_was * before.replicas,
        float(after.replicas - before.replicas),
    )
