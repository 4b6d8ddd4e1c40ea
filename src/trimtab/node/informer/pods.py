"""Pods as a node needs them, projected from the kubelet's and the API server's objects.

`kube.kinds.pods` omits what only a node uses: container ids, and static pods. The kubelet creates those from
files; the API server has only mirror pods, whose uids differ from those in cgroup names.
"""

from __future__ import annotations

import re
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
_CONFIG_MIRROR = "kubernetes.io/config.mirror"
_CONFIG_SOURCE = "kubernetes.io/config.source"
_RAW_CONFIG_PREFIX = b"kubernetes.io/config."
_STATIC_SOURCES = ("file", "http")
_CONTAINER_ID = re.compile(r"[a-z0-9-]{1,32}://[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
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
    """The uid in the cgroup's name: the pod's uid, except for a mirror pod, which claims that of its static pod."""
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
        # The id becomes part of a path: whoever may write pod statuses must not choose another cgroup by it.
        return [
            status
            for status in each
            if status.state.running is not None and _CONTAINER_ID.fullmatch(status.container_id)
        ]


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
        """The projection of the API server's pods."""
        return Projection(wire_type=_PodWire, project=self.project_api_pod)

    def parse_list(self, answer: bytes) -> list[KnownPod]:
        """Return the pods of the kubelet's list."""
        return [
            self._project(wire, static_uid=_read_static_uid(wire.metadata))
            for wire in _PODS.decode(answer).items or ()
        ]

    def project_api_pod(self, wire: _PodWire) -> KnownPod:
        owner = self._cache.read_owner(wire.metadata.owner_references)
        mirrors = owner is not None and owner.kind == "Node"
        return self._project(wire, static_uid=_read_mirrored_uid(wire.metadata) if mirrors else "")

    def _project(self, wire: _PodWire, *, static_uid: str) -> KnownPod:
        metadata, status, folding = wire.metadata, wire.status, self._cache
        wanted = {container.name: container.resources for container in self._containers.project(wire.spec)}
        owner = folding.read_owner(metadata.owner_references)
        return KnownPod(
            namespace=folding.intern[metadata.namespace],
            name=metadata.name,
            uid=metadata.uid,
            version=parse_resource_version(metadata.resource_version),
            cgroup_uid=static_uid or metadata.uid,
            qos=status.qos_class,
            priority=wire.spec.priority,
            started=to_unix_seconds(status.start_time),
            deleting=metadata.deletion_timestamp is not None,
            is_node_bound=bool(static_uid) or (owner is not None and owner.kind == "DaemonSet"),
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


def _read_static_uid(metadata: MetadataWire) -> str:
    """Return the uid of a static pod in the kubelet's list; empty for other pods.

    The kubelet sets the source of every pod itself, so a user who annotates a pod with another source changes nothing.
    A static pod has the hash of its manifest as its uid.
    """
    annotations = _read_config_annotations(metadata)
    return metadata.uid if annotations.get(_CONFIG_SOURCE) in _STATIC_SOURCES else ""


def _read_mirrored_uid(metadata: MetadataWire) -> str:
    """Return the uid of the static pod that a pod of the API server claims to mirror; empty if it claims none.

    Anyone who may create pods can write these annotations. The kubelet runs no container of a pod with the mirror
    annotation, so a pod that does run cannot claim another's cgroup; `merge_known_pods` rejects disputed claims.
    """
    annotations = _read_config_annotations(metadata)
    mirrored = annotations.get(_CONFIG_MIRROR, "")
    return mirrored if mirrored == annotations.get(_CONFIG_HASH) else ""


def _read_config_annotations(metadata: MetadataWire) -> dict[str, str]:
    raw = bytes(metadata.annotations)
    found: dict[str, str] = msgspec.json.decode(raw) if _RAW_CONFIG_PREFIX in raw else {}
    return found
