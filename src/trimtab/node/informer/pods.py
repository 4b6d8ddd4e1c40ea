"""Pods as a node needs them, projected from the kubelet's and the API server's objects.

`kube.kinds.pods` omits what only a node uses: container ids, and static pods. The kubelet creates those from
files; the API server has only mirror pods, whose uids differ from those in cgroup names.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from trimtab.kube.cache.projection import (
    Labels,
    MetadataWire,
    Projection,
    ProjectionCache,
    parse_resource_version,
    to_unix_seconds,
)
from trimtab.kube.kinds.pods import ContainerProjector, ContainersWire, RawResources, Resources
from trimtab.node.cgroups import QosClass

_CONFIG_HASH = "kubernetes.io/config.hash"
_RAW_CONFIG_HASH = _CONFIG_HASH.encode()
_NO_RESOURCES = Resources()


class KnownContainer(msgspec.Struct, frozen=True, gc=False):
    """A running container; `id` includes the runtime's prefix."""

    name: str
    id: str
    resources: Resources
    spec_resources: Resources
    """The resources in the spec."""


class KnownPod(msgspec.Struct, frozen=True, gc=False):
    """A pod as described by the kubelet or the API server."""

    namespace: str
    name: str
    uid: str
    version: int
    cgroup_uid: str
    """The uid in the cgroup's name: the pod's uid, except for a mirror pod."""
    qos: QosClass
    priority: int
    started: int
    deleting: bool
    is_node_bound: bool
    """Set for static pods and DaemonSet pods, which would come back at once after an eviction."""
    labels: Labels
    annotations: Labels
    containers: tuple[KnownContainer, ...]
    pod_level_resources: Resources
    """The pod-level resources in the spec."""


class _SpecWire(ContainersWire, frozen=True, gc=False):
    priority: int = 0
    resources: RawResources = msgspec.Raw(b"{}")


class _RunningWire(msgspec.Struct, frozen=True, gc=False):
    """The state of a running container, of which only the presence matters."""


class _StateWire(msgspec.Struct, frozen=True, gc=False):
    running: _RunningWire | None = None


class _ContainerStatusWire(msgspec.Struct, rename={"container_id": "containerID"}, frozen=True, gc=False):
    name: str = ""
    container_id: str = ""
    state: _StateWire = _StateWire()
    resources: RawResources = msgspec.Raw(b"null")


class _StatusWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    qos_class: QosClass = QosClass.BEST_EFFORT
    start_time: datetime | None = None
    container_statuses: tuple[_ContainerStatusWire, ...] = ()
    init_container_statuses: tuple[_ContainerStatusWire, ...] = ()
    ephemeral_container_statuses: tuple[_ContainerStatusWire, ...] = ()

    @property
    def running(self) -> list[_ContainerStatusWire]:
        each = (*self.container_statuses, *self.init_container_statuses, *self.ephemeral_container_statuses)
        return [status for status in each if status.state.running is not None and status.container_id]


class _PodWire(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: _SpecWire = _SpecWire()
    status: _StatusWire = _StatusWire()


class _PodsWire(msgspec.Struct, frozen=True, gc=False):
    items: tuple[_PodWire, ...] | None = None


_PODS = msgspec.json.Decoder(_PodsWire)


class PodProjector:
    """Projects pods of both sources and shares equal values."""

    def __init__(self) -> None:
        self._cache = ProjectionCache()
        self._containers = ContainerProjector(self._cache)

    @property
    def projection(self) -> Projection[KnownPod]:
        return Projection(wire_type=_PodWire, project=self.project)

    def parse_list(self, answer: bytes) -> list[KnownPod]:
        """Return the pods of a list in the kubelet's format."""
        return [self.project(wire) for wire in _PODS.decode(answer).items or ()]

    def project(self, wire: _PodWire) -> KnownPod:
        metadata, status, folding = wire.metadata, wire.status, self._cache
        wanted = {container.name: container.resources for container in self._containers.project(wire.spec)}
        static, owner = _read_config_hash(metadata), folding.read_owner(metadata.owner_references)
        return KnownPod(
            namespace=folding.intern[metadata.namespace],
            name=metadata.name,
            uid=metadata.uid,
            version=parse_resource_version(metadata.resource_version),
            cgroup_uid=static or metadata.uid,
            qos=status.qos_class,
            priority=wire.spec.priority,
            started=to_unix_seconds(status.start_time),
            deleting=metadata.deletion_timestamp is not None,
            is_node_bound=bool(static) or (owner is not None and owner.kind == "DaemonSet"),
            labels=folding.read_labels(metadata.labels),
            annotations=folding.read_own_annotations(metadata.annotations),
            containers=tuple(
                KnownContainer(
                    folding.intern[one.name],
                    one.container_id,
                    wanted.get(one.name, _NO_RESOURCES)
                    if bytes(one.resources) == b"null"
                    else self._containers.resources[bytes(one.resources)],
                    wanted.get(one.name, _NO_RESOURCES),
                )
                for one in status.running
            ),
            pod_level_resources=self._containers.resources[bytes(wire.spec.resources)],
        )


def _read_config_hash(metadata: MetadataWire) -> str:
    raw = bytes(metadata.annotations)
    if _RAW_CONFIG_HASH not in raw:
        return ""
    found: dict[str, str] = msgspec.json.decode(raw)
    return found.get(_CONFIG_HASH, "")
