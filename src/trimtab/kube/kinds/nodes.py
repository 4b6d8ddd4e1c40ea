"""Nodes, projected to their capacity and their availability, and the constraints of pod templates on nodes.

The constraints are taints, tolerations and the node selector. Affinity, topology spread and volumes are left out; pods
that they keep off a node show up as pending.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from trimtab.api.quantity import Quantity, parse_memory_bytes, parse_millicores
from trimtab.kube.cache.projection import (
    Labels,
    MetadataWire,
    Projection,
    ProjectionCache,
    parse_resource_version,
    to_unix_seconds,
)

_BLOCKING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


class Taint(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    value: str = ""
    effect: str = ""

    @property
    def blocks_scheduling(self) -> bool:
        return self.effect in _BLOCKING_EFFECTS


class Toleration(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    """The key of the taint; empty with the operator Exists matches every key."""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    """The effect of the taint; empty matches every effect."""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect not in {"", taint.effect} or self.key not in {"", taint.key}:
            return False
        return self.operator == "Exists" or (self.key == taint.key and self.value == taint.value)


class SchedulingConstraints(msgspec.Struct, frozen=True):
    """The constraints of a pod template on nodes."""

    tolerations: tuple[Toleration, ...] = ()
    node_selector: Labels = ()

    def allows_node(self, taints: Iterable[Taint], labels: Labels) -> bool:
        """Return True if pods may run on a node with these taints and labels."""
        return set(self.node_selector) <= set(labels) and all(
            any(each.tolerates(taint) for each in self.tolerations)
            for taint in taints
            if taint.blocks_scheduling
        )


class NodeResources(msgspec.Struct, frozen=True, gc=False):
    """The resources of a node in millicores, bytes and pods."""

    cpu: int = 0
    memory: int = 0
    pods: int = 0


class Node(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One node."""

    name: str
    uid: str
    version: int
    capacity: NodeResources
    allocatable: NodeResources
    ready: bool
    unschedulable: bool
    created: int
    labels: Labels
    annotations: Labels
    taints: tuple[Taint, ...] = ()
    kubelet_version: str = ""
    """The version of the kubelet, such as v1.34.1."""

    @property
    def namespace(self) -> str:
        return ""


class _SpecWire(msgspec.Struct, frozen=True, gc=False):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class _ConditionWire(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class _NodeInfoWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    kubelet_version: str = ""


class _StatusWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    conditions: list[_ConditionWire] = []
    node_info: _NodeInfoWire = _NodeInfoWire()


class _NodeWire(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: _SpecWire = _SpecWire()
    status: _StatusWire = _StatusWire()


def node_projection(cache: ProjectionCache | None = None) -> Projection[Node]:
    """Read nodes as compact records."""
    shared = cache or ProjectionCache()

    def project(wire: _NodeWire) -> Node:
        metadata, status = wire.metadata, wire.status
        return Node(
            name=shared.intern[metadata.name],
            uid=metadata.uid,
            version=parse_resource_version(metadata.resource_version),
            capacity=shared.intern[_read_resources(status.capacity)],
            allocatable=shared.intern[_read_resources(status.allocatable)],
            ready=any(
                condition.type == "Ready" and condition.status == "True" for condition in status.conditions
            ),
            unschedulable=wire.spec.unschedulable,
            created=to_unix_seconds(metadata.creation_timestamp),
            labels=shared.read_labels(metadata.labels),
            annotations=shared.read_own_annotations(metadata.annotations),
            taints=shared.intern[wire.spec.taints],
            kubelet_version=shared.intern[status.node_info.kubelet_version],
        )

    return Projection(wire_type=_NodeWire, project=project)


def _read_resources(amounts: Mapping[str, str]) -> NodeResources:
    return NodeResources(
        cpu=parse_millicores(amounts.get("cpu", "0")),
        memory=parse_memory_bytes(amounts.get("memory", "0")),
        # The number of pods is a quantity too: a thousand may be written as 1k.
        pods=Quantity.parse(amounts.get("pods", "0")).bytes,
    )
