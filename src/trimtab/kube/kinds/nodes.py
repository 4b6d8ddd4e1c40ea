"""Nodes, folded to what fits on them and whether they can be used."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trimtab.api.quantity import Quantity, memory_bytes, millicores
from trimtab.kube.cache.projection import Folding, Labels, MetadataWire, Shape, seconds, version_number
from trimtab.kube.kinds.scheduling import Taint


class Room(msgspec.Struct, frozen=True, gc=False):
    """How much a node has, in millicores, bytes and pods."""

    cpu: int = 0
    memory: int = 0
    pods: int = 0


class Node(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One node."""

    name: str
    uid: str
    version: int
    capacity: Room
    allocatable: Room
    ready: bool
    unschedulable: bool
    created: int
    labels: Labels
    annotations: Labels
    taints: tuple[Taint, ...] = ()
    kubelet: str = ""
    """The version of its kubelet, such as v1.34.1."""

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


def nodes(folding: Folding | None = None) -> Shape[Node]:
    """Read nodes as compact records."""
    shared = folding or Folding()

    def fold(wire: _NodeWire) -> Node:
        metadata, status = wire.metadata, wire.status
        return Node(
            name=shared.intern[metadata.name],
            uid=metadata.uid,
            version=version_number(metadata.resource_version),
            capacity=shared.intern[_room(status.capacity)],
            allocatable=shared.intern[_room(status.allocatable)],
            ready=any(
                condition.type == "Ready" and condition.status == "True" for condition in status.conditions
            ),
            unschedulable=wire.spec.unschedulable,
            created=seconds(metadata.creation_timestamp),
            labels=shared.labels(metadata.labels),
            annotations=shared.our_annotations(metadata.annotations),
            taints=shared.intern[wire.spec.taints],
            kubelet=shared.intern[status.node_info.kubelet_version],
        )

    return Shape(wire=_NodeWire, fold=fold)


def _room(amounts: Mapping[str, str]) -> Room:
    return Room(
        cpu=millicores(amounts.get("cpu", "0")),
        memory=memory_bytes(amounts.get("memory", "0")),
        # A quantity like the others: a thousand of them is 1k.
        pods=Quantity.parse(amounts.get("pods", "0")).bytes,
    )
