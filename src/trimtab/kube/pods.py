"""Pods, folded to what sizing, actuation and planning look at: about a tenth of what the server sends.

Left out on purpose: images, volumes, environment, probes, container ids, the times of running
containers. They would differ from replica to replica and so could not be shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from trimtab.api.quantity import memory_bytes, millicores
from trimtab.kube.records import Folding, Labels, MetadataWire, Owner, Shape, seconds, version_number

Role = Literal["main", "init", "sidecar"]


class Resources(msgspec.Struct, frozen=True, gc=False):
    """Requests and limits of one container, in millicores and bytes; None where it has none."""

    cpu_request: int | None = None
    cpu_limit: int | None = None
    memory_request: int | None = None
    memory_limit: int | None = None


class Container(msgspec.Struct, frozen=True, gc=False):
    """A container as the pod's spec wants it."""

    name: str
    role: Role
    resources: Resources
    restart_on_cpu_resize: bool = False
    restart_on_memory_resize: bool = False


class Exit(msgspec.Struct, frozen=True, gc=False):
    """How a container last ended."""

    reason: str
    code: int
    at: int


class ContainerState(msgspec.Struct, frozen=True, gc=False):
    """A container as the kubelet reports it; `applied` is what its cgroup has now."""

    name: str
    ready: bool
    restarts: int
    waiting: str
    applied: Resources | None
    last_exit: Exit | None


class Resize(msgspec.Struct, frozen=True, gc=False):
    """A resize that is under way, or that the kubelet cannot do now (Deferred) or ever (Infeasible)."""

    condition: Literal["PodResizePending", "PodResizeInProgress"]
    reason: str
    message: str


class Pod(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One pod. Times are seconds since 1970; equality is identity, so that sets of pods are cheap."""

    namespace: str
    name: str
    uid: str
    version: int
    node: str
    phase: str
    qos: str
    ready: bool
    deleting: bool
    priority: int
    created: int
    started: int
    owner: Owner | None
    labels: Labels
    annotations: Labels
    containers: tuple[Container, ...]
    states: tuple[ContainerState, ...]
    resize: Resize | None


class _ResourcesWire(msgspec.Struct, gc=False):
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class _ResizePolicyWire(msgspec.Struct, rename="camel", gc=False):
    resource_name: str = ""
    restart_policy: str = ""


class _ContainerWire(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    resources: _ResourcesWire = _ResourcesWire()
    resize_policy: list[_ResizePolicyWire] = []
    restart_policy: str | None = None


class _SpecWire(msgspec.Struct, rename="camel", gc=False):
    containers: list[_ContainerWire] = []
    init_containers: list[_ContainerWire] = []
    node_name: str = ""
    priority: int = 0


class _TerminatedWire(msgspec.Struct, rename="camel", gc=False):
    reason: str = ""
    exit_code: int = 0
    finished_at: str | None = None


class _WaitingWire(msgspec.Struct, gc=False):
    reason: str = ""


class _StateWire(msgspec.Struct, gc=False):
    terminated: _TerminatedWire | None = None
    waiting: _WaitingWire | None = None


class _ContainerStatusWire(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    resources: _ResourcesWire | None = None
    state: _StateWire = _StateWire()
    last_state: _StateWire = _StateWire()


class _ConditionWire(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _StatusWire(msgspec.Struct, rename="camel", gc=False):
    phase: str = ""
    qos_class: str = ""
    start_time: str | None = None
    conditions: list[_ConditionWire] = []
    container_statuses: list[_ContainerStatusWire] = []
    init_container_statuses: list[_ContainerStatusWire] = []


class _PodWire(msgspec.Struct, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: _SpecWire = _SpecWire()
    status: _StatusWire = _StatusWire()


def pods(folding: Folding | None = None) -> Shape[Pod]:
    """Read pods as compact records; caches that share a `Folding` share equal values."""
    return Shape(wire=_PodWire, fold=_PodFolding(folding or Folding()).fold)


class _PodFolding:
    def __init__(self, folding: Folding) -> None:
        self._folding = folding
        self._intern = folding.intern

    def fold(self, wire: _PodWire) -> Pod:
        folding, intern = self._folding, self._intern
        metadata, spec, status = wire.metadata, wire.spec, wire.status
        containers = [self._container(container, "main") for container in spec.containers]
        containers += [
            self._container(container, "sidecar" if container.restart_policy == "Always" else "init")
            for container in spec.init_containers
        ]
        states = [self._state(state) for state in status.container_statuses]
        states += [self._state(state) for state in status.init_container_statuses]
        ready, resize = self._conditions(status.conditions)
        return Pod(
            namespace=intern(metadata.namespace),
            name=metadata.name,
            uid=metadata.uid,
            version=version_number(metadata.resource_version),
            node=intern(spec.node_name),
            phase=intern(status.phase),
            qos=intern(status.qos_class),
            ready=ready,
            deleting=metadata.deletion_timestamp is not None,
            priority=spec.priority,
            created=seconds(metadata.creation_timestamp),
            started=seconds(status.start_time),
            owner=folding.owner(metadata.owner_references),
            labels=folding.labels(metadata.labels),
            annotations=folding.our_annotations(metadata.annotations),
            containers=intern(tuple(containers)),
            states=intern(tuple(states)),
            resize=resize,
        )

    def _container(self, wire: _ContainerWire, role: Role) -> Container:
        restart_on = [policy.resource_name for policy in wire.resize_policy if policy.restart_policy == "RestartContainer"]
        return self._intern(
            Container(
                self._intern(wire.name),
                role,
                self._resources(wire.resources),
                "cpu" in restart_on,
                "memory" in restart_on,
            )
        )

    def _state(self, wire: _ContainerStatusWire) -> ContainerState:
        ended = wire.state.terminated or wire.last_state.terminated
        return self._intern(
            ContainerState(
                name=self._intern(wire.name),
                ready=wire.ready,
                restarts=wire.restart_count,
                waiting=self._intern(wire.state.waiting.reason) if wire.state.waiting else "",
                applied=self._resources(wire.resources) if wire.resources else None,
                last_exit=Exit(self._intern(ended.reason), ended.exit_code, seconds(ended.finished_at)) if ended else None,
            )
        )

    def _resources(self, wire: _ResourcesWire) -> Resources:
        requests, limits = wire.requests, wire.limits
        return self._intern(
            Resources(
                _amount(requests, "cpu"), _amount(limits, "cpu"), _amount(requests, "memory"), _amount(limits, "memory")
            )
        )

    def _conditions(self, conditions: list[_ConditionWire]) -> tuple[bool, Resize | None]:
        ready, resize = False, None
        for condition in conditions:
            if condition.status != "True":
                continue
            if condition.type == "Ready":
                ready = True
            elif condition.type in {"PodResizePending", "PodResizeInProgress"}:
                resize = Resize(condition.type, condition.reason, condition.message)  # type: ignore[arg-type]
        return ready, resize


def _amount(amounts: Mapping[str, str], resource: str) -> int | None:
    text = amounts.get(resource)
    if text is None:
        return None
    return millicores(text) if resource == "cpu" else memory_bytes(text)
