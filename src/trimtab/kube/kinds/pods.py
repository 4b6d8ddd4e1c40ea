"""Pods, projected to what sizing, actuation and planning need: about a tenth of what the server sends.

Volumes, environment, probes, container ids and the start times of containers are left out on purpose: they differ
between replicas and could not be shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Annotated, Literal, NamedTuple

import msgspec

from trimtab.api.quantity import ResourceName, parse_memory_bytes, parse_millicores
from trimtab.kube.cache.interning import Memo
from trimtab.kube.cache.projection import (
    Labels,
    MetadataWire,
    OwnerReference,
    Projection,
    ProjectionCache,
    decoded_as,
    parse_resource_version,
    to_unix_seconds,
)

_PENDING, _IN_PROGRESS = "PodResizePending", "PodResizeInProgress"

Role = Literal["main", "init", "sidecar"]


class RequestLimit(NamedTuple):
    """Request and limit of one resource, in millicores or bytes; None if not set."""

    request: int | None = None
    limit: int | None = None

    def map(self, change: Callable[[int], int]) -> RequestLimit:
        """Change each amount that is set."""
        return RequestLimit(*(None if amount is None else change(amount) for amount in self))

    def with_implied_request(self) -> RequestLimit:
        """Return the pair as schedulers and quotas count it: a limit without a request is also a request."""
        return RequestLimit(self.limit if self.request is None else self.request, self.limit)


Amount = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""An amount that a quantity of Kubernetes can have; sizes in annotations are written by users."""


class Resources(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Requests and limits of one container, in millicores and bytes; None if not set.

    The four fields are the stored form. Arithmetic treats CPU and memory alike: `map` and `combine` work on one
    `RequestLimit` for each resource, `amounts` on all four numbers.
    """

    cpu_request: Amount | None = None
    cpu_limit: Amount | None = None
    memory_request: Amount | None = None
    memory_limit: Amount | None = None

    @classmethod
    def from_pairs(cls, cpu: RequestLimit, memory: RequestLimit) -> Resources:
        return cls(*cpu, *memory)

    @classmethod
    def parse(cls, requests: Mapping[str, object], limits: Mapping[str, object]) -> Resources:
        """Parse the quantities of a manifest, `requests` and `limits` by resource name."""
        return cls(
            _parse_amount(requests, "cpu"),
            _parse_amount(limits, "cpu"),
            _parse_amount(requests, "memory"),
            _parse_amount(limits, "memory"),
        )

    @classmethod
    def total(cls, each: Iterable[Resources]) -> Resources:
        """Return the sum of the requests that are set, and of the limits if each has one.

        One container without a limit leaves the pod without a limit.
        """
        columns = list(zip(*(one.amounts for one in each), strict=True))
        if not columns:
            return cls()
        cpu_request, cpu_limit, memory_request, memory_limit = columns
        return cls(
            _sum_known(cpu_request),
            None if None in cpu_limit else _sum_known(cpu_limit),
            _sum_known(memory_request),
            None if None in memory_limit else _sum_known(memory_limit),
        )

    @property
    def amounts(self) -> tuple[int | None, int | None, int | None, int | None]:
        """Return the amounts in the order of the fields."""
        return self.cpu_request, self.cpu_limit, self.memory_request, self.memory_limit

    @property
    def cpu(self) -> RequestLimit:
        return RequestLimit(self.cpu_request, self.cpu_limit)

    @property
    def memory(self) -> RequestLimit:
        return RequestLimit(self.memory_request, self.memory_limit)

    def select(self, resource: ResourceName) -> RequestLimit:
        """Return request and limit of one resource."""
        return self.cpu if resource == "cpu" else self.memory

    def map(self, change: Callable[[RequestLimit], RequestLimit]) -> Resources:
        """Change CPU and memory by the same rule."""
        return Resources.from_pairs(change(self.cpu), change(self.memory))

    def combine(
        self, other: Resources, merge: Callable[[RequestLimit, RequestLimit], RequestLimit]
    ) -> Resources:
        """Merge two sizes, CPU and memory by the same rule."""
        return Resources.from_pairs(merge(self.cpu, other.cpu), merge(self.memory, other.memory))

    def fill_from(self, other: Resources) -> Resources:
        """Take the amounts that are not set from another size."""
        pairs = zip(self.amounts, other.amounts, strict=True)
        return Resources(*(fallback if own is None else own for own, fallback in pairs))

    def with_implied_requests(self) -> Resources:
        """Return resources as schedulers and quotas count them: a limit without a request is also a request."""
        # Nearly all containers set requests, and each reconcile asks for them a dozen times.
        if (self.cpu_request is not None or self.cpu_limit is None) and (
            self.memory_request is not None or self.memory_limit is None
        ):
            return self
        return self.map(RequestLimit.with_implied_request)


class Container(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A container as the pod's spec defines it."""

    name: str
    role: Role
    resources: Resources
    restart_on_cpu_resize: bool = False
    restart_on_memory_resize: bool = False
    image: str = ""
    """The image of the spec: after a new image, earlier observations of the container may no longer hold."""

    def restarts_on_resize(self, resource: ResourceName) -> bool:
        """Return True if the container's resizePolicy restarts it when this resource is resized."""
        return self.restart_on_cpu_resize if resource == "cpu" else self.restart_on_memory_resize


class ContainerTermination(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The last termination of a container."""

    reason: str
    exit_code: int
    finished_at: int


class ContainerStatus(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A container as the kubelet reports it; `actual_resources` are those of its cgroup, `is_terminated` is true
    while it does not run.
    """

    name: str
    ready: bool
    restarts: int
    waiting_reason: str
    actual_resources: Resources | None
    last_termination: ContainerTermination | None
    is_terminated: bool = False


class PodResize(msgspec.Struct, frozen=True, gc=False):
    """A resize that is in progress (PodResizeInProgress), deferred or infeasible (PodResizePending, with its
    reason).
    """

    condition: str
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
    qos_class: str
    ready: bool
    deleting: bool
    priority: int
    created: int
    started: int
    owner: OwnerReference | None
    labels: Labels
    annotations: Labels
    containers: tuple[Container, ...]
    container_statuses: tuple[ContainerStatus, ...]
    resize: PodResize | None
    pod_resources: Resources = Resources()
    """The resources for the pod as a whole, at `spec.resources`."""
    overhead: Resources = Resources()
    """The resources that its sandbox needs in addition to its containers, as requests."""
    ready_since: int = 0
    """The time since which the pod is ready, by the clock of its node; 0 if it is not ready or does not report it."""


_NO_RESOURCES = Resources()
_Amounts = dict[str, str | int | float]
"""Amounts by resource; the template of a custom kind may have numbers, for built-in kinds the server converts them to
text."""


class _ResourcesWire(msgspec.Struct, frozen=True, gc=False):
    requests: _Amounts = {}
    limits: _Amounts = {}


class _ResizePolicyWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    resource_name: str = ""
    restart_policy: str = ""


RawResources = Annotated[msgspec.Raw, decoded_as(_ResourcesWire)]
_RESOURCES = msgspec.json.Decoder(_ResourcesWire)
_RESIZE_POLICIES = msgspec.json.Decoder(list[_ResizePolicyWire])


class _ContainerWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    name: str = ""
    resources: RawResources = msgspec.Raw(b"{}")
    resize_policy: Annotated[msgspec.Raw, decoded_as(list[_ResizePolicyWire])] = msgspec.Raw(b"[]")
    restart_policy: str | None = None
    image: str | None = None


class ContainersWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The containers in the spec of a pod or of a workload's template."""

    containers: tuple[_ContainerWire, ...] = ()
    init_containers: tuple[_ContainerWire, ...] = ()


class _SpecWire(ContainersWire, rename="camel", frozen=True, gc=False):
    node_name: str = ""
    priority: int = 0
    resources: RawResources = msgspec.Raw(b"{}")
    overhead: _Amounts = {}


class _TerminatedWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    reason: str = ""
    exit_code: int = 0
    finished_at: datetime | None = None


class _WaitingWire(msgspec.Struct, frozen=True, gc=False):
    reason: str = ""


class _StateWire(msgspec.Struct, frozen=True, gc=False):
    terminated: _TerminatedWire | None = None
    waiting: _WaitingWire | None = None


class _ContainerStatusWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    resources: RawResources = msgspec.Raw(b"null")
    state: _StateWire = _StateWire()
    last_state: _StateWire = _StateWire()


class _ConditionWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    """The time as text, because it is parsed for few conditions only."""


class _StatusWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    phase: str = ""
    qos_class: str = ""
    start_time: datetime | None = None
    conditions: tuple[_ConditionWire, ...] = ()
    container_statuses: tuple[_ContainerStatusWire, ...] = ()
    init_container_statuses: tuple[_ContainerStatusWire, ...] = ()


class _PodWire(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: _SpecWire = _SpecWire()
    status: _StatusWire = _StatusWire()


def pod_projection(cache: ProjectionCache | None = None) -> Projection[Pod]:
    """Read pods as compact records; caches that share a `ProjectionCache` share equal values."""
    return Projection(wire_type=_PodWire, project=_PodRecordBuilder(cache or ProjectionCache()).project)


class ContainerProjector:
    """Projects the containers of pods and templates; they are looked up by their differences and built only when
    new.
    """

    def __init__(self, cache: ProjectionCache) -> None:
        self._intern = cache.intern
        self.resources = Memo(self._make_resources)
        self._container = Memo(self._make_container)

    def project(self, spec: ContainersWire) -> tuple[Container, ...]:
        known = self._container
        found = [
            known[w.name, "main", bytes(w.resources), bytes(w.resize_policy), w.image or ""]
            for w in spec.containers
        ]
        for wire in spec.init_containers:
            # An init container that always restarts runs beside the others: left out, it would be neither counted nor
            # sized.
            role: Role = "sidecar" if wire.restart_policy == "Always" else "init"
            key = wire.name, role, bytes(wire.resources), bytes(wire.resize_policy), wire.image or ""
            found.append(known[key])
        containers: tuple[Container, ...] = self._intern[tuple(found)]
        return containers

    def _make_container(self, key: tuple[str, Role, bytes, bytes, str]) -> Container:
        name, role, resources, resize_policy, image = key
        restart_on = [
            policy.resource_name
            for policy in _RESIZE_POLICIES.decode(resize_policy)
            if policy.restart_policy == "RestartContainer"
        ]
        container: Container = self._intern[
            Container(
                self._intern[name],
                role,
                self.resources[resources],
                "cpu" in restart_on,
                "memory" in restart_on,
                self._intern[image],
            )
        ]
        return container

    def _make_resources(self, raw: bytes) -> Resources:
        wire = _RESOURCES.decode(raw)
        resources: Resources = self._intern[Resources.parse(wire.requests, wire.limits)]
        return resources


class _PodRecordBuilder:
    """Projects pods; containers and statuses are built only when new."""

    def __init__(self, cache: ProjectionCache) -> None:
        self._cache = cache
        self._intern = cache.intern
        self._containers = ContainerProjector(cache)
        self._status = Memo(self._make_status)

    def project(self, wire: _PodWire) -> Pod:
        shared, intern = self._cache, self._intern
        metadata, spec, status = wire.metadata, wire.spec, wire.status
        ready, ready_since, resize = _read_conditions(status.conditions)
        return Pod(
            intern[metadata.namespace],
            metadata.name,
            metadata.uid,
            parse_resource_version(metadata.resource_version),
            intern[spec.node_name],
            intern[status.phase],
            intern[status.qos_class],
            ready,
            metadata.deletion_timestamp is not None,
            spec.priority,
            to_unix_seconds(metadata.creation_timestamp),
            to_unix_seconds(status.start_time),
            shared.read_owner(metadata.owner_references),
            shared.read_labels(metadata.labels),
            shared.read_own_annotations(metadata.annotations),
            self._containers.project(spec),
            self._project_statuses(status),
            resize,
            self._containers.resources[bytes(spec.resources)],
            self._project_overhead(spec.overhead),
            ready_since,
        )

    def _project_overhead(self, amounts: _Amounts) -> Resources:
        if not amounts:  # as for nearly every pod
            return _NO_RESOURCES
        found: Resources = self._intern[
            Resources(
                cpu_request=_parse_amount(amounts, "cpu"), memory_request=_parse_amount(amounts, "memory")
            )
        ]
        return found

    def _project_statuses(self, status: _StatusWire) -> tuple[ContainerStatus, ...]:
        wires = status.container_statuses
        # Sidecars report their state among the init containers.
        if status.init_container_statuses:
            wires += status.init_container_statuses
        known = self._status
        found = []
        for wire in wires:
            state = wire.state
            found.append(
                known[
                    wire.name,
                    wire.ready,
                    wire.restart_count,
                    bytes(wire.resources),
                    state.waiting,
                    state.terminated,
                    wire.last_state.terminated,
                ]
            )
        states: tuple[ContainerStatus, ...] = self._intern[tuple(found)]
        return states

    def _make_status(
        self,
        key: tuple[
            str, bool, int, bytes, _WaitingWire | None, _TerminatedWire | None, _TerminatedWire | None
        ],
    ) -> ContainerStatus:
        name, ready, restarts, resources, waiting, present, former = key
        ended = present or former
        made: ContainerStatus = self._intern[
            ContainerStatus(
                name=self._intern[name],
                ready=ready,
                restarts=restarts,
                waiting_reason=self._intern[waiting.reason] if waiting else "",
                actual_resources=None if resources == b"null" else self._containers.resources[resources],
                last_termination=ContainerTermination(
                    self._intern[ended.reason], ended.exit_code, to_unix_seconds(ended.finished_at)
                )
                if ended
                else None,
                is_terminated=present is not None,
            )
        ]
        return made


def _read_conditions(conditions: tuple[_ConditionWire, ...]) -> tuple[bool, int, PodResize | None]:
    """Return if the pod is ready, the time since then, and its resize if there is one."""
    ready, since = False, 0
    resize: PodResize | None = None
    in_progress: PodResize | None = None
    for condition in conditions:
        kind = condition.type
        if kind == "Ready":
            ready = condition.status == "True"
            since = _parse_time(condition.last_transition_time) if ready else 0
        elif kind == _PENDING and condition.status == "True":
            resize = PodResize(kind, condition.reason, condition.message)
        elif kind == _IN_PROGRESS and condition.status == "True":
            in_progress = PodResize(kind, condition.reason, condition.message)
    # A pod with one resize in progress and a second one pending has both conditions: only the pending one is about
    # the current spec, and only it reports Infeasible or Deferred.
    return ready, since, resize or in_progress


def _parse_time(text: str | None) -> int:
    """Parse a time; 0 if there is none or it is invalid."""
    try:
        return to_unix_seconds(datetime.fromisoformat(text)) if text else 0
    except ValueError:
        return 0


def _sum_known(amounts: Iterable[int | None]) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def _parse_amount(amounts: Mapping[str, object], resource: ResourceName) -> int | None:
    found = amounts.get(resource)
    if found is None:
        return None
    return parse_millicores(str(found)) if resource == "cpu" else parse_memory_bytes(str(found))
