"""Nodes, projected to their capacity and their availability."""

from __future__ import annotations

from collections.abc import Mapping

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
from trimtab.kube.kinds.scheduling import Taint


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
