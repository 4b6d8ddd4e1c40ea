"""Workloads, projected to what sizing and actuation need: their pods, resources and rollout state.

One record describes every kind: the built-in ones, and any kind with a pod template at `spec.template`, as kinds with
a scale subresource have; `workload_schemas` decodes each kind.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec

from trimtab.kube.cache.interning import Memo
from trimtab.kube.cache.projection import (
    Labels,
    MetadataWire,
    OwnerReference,
    Projection,
    ProjectionCache,
    parse_resource_version,
    to_unix_seconds,
)
from trimtab.kube.kinds.heap_flags import HeapFlags, parse_heap_flags
from trimtab.kube.kinds.nodes import SchedulingConstraints, Toleration
from trimtab.kube.kinds.pods import Container, ContainerProjector, ContainersWire, Resources
from trimtab.kube.kinds.workload_schemas import (
    BUILT_IN_KINDS,
    LabelSelectorWire,
    PodTemplateWire,
    WorkloadWireState,
    state_reader,
    wire_type,
)
from trimtab.kube.nulls import drop_nulls
from trimtab.kube.rest.resources import Resource

T = TypeVar("T")

BUILT_IN = BUILT_IN_KINDS
_BATCH_KINDS = frozenset({"Job", "CronJob"})
_BUILT_IN_GROUPS = frozenset(resource.group for resource in BUILT_IN)


class WorkloadKey(NamedTuple):
    """The identity of a workload; `kind` is spelled as in policies: Deployment, or Rollout.argoproj.io for a custom
    kind.
    """

    kind: str
    namespace: str
    name: str

    @property
    def is_long_running(self) -> bool:
        """Its pods run all the time; this is false for Jobs of any API group."""
        return self.kind.partition(".")[0] not in _BATCH_KINDS

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def qualify_kind(kind: str, group: str) -> str:
    """Return a kind as policies spell it."""
    return kind if group in _BUILT_IN_GROUPS else f"{kind}.{group}".rstrip(".")


class Workload(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One workload. `containers` are those of its pod template, `selector` selects its pods ("" if it has none)."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    version: int
    generation: int
    created: int
    deleting: bool
    owner: OwnerReference | None
    labels: Labels
    annotations: Labels
    containers: tuple[Container, ...]
    selector: str
    replicas: int
    updated_replicas: int
    """The number of pods that have the latest template."""
    ready_replicas: int
    """The number of pods that are ready."""
    update_strategy: str
    """The way it replaces its pods when the template changes: RollingUpdate, Recreate, OnDelete; "" if not
    specified."""
    is_spec_observed: bool
    """Its controller has observed the latest spec."""
    is_rolling_out: bool
    """A rollout is in progress: there are pods of an older template that will be replaced."""
    paused: bool
    """Its controller is suspended: a paused Deployment, a suspended Job or CronJob."""
    finished: bool
    """It has run to completion, as only a Job does."""
    heap_flags: tuple[HeapFlags, ...] = ()
    """The heap settings of its template; most workloads have none."""
    pod_resources: Resources | None = None
    """The resources for the pod as a whole, at `spec.resources` of the template; None without CPU and memory."""
    partition: int = 0
    """The number of a StatefulSet's first pods that a rollout does not replace."""
    scheduling: SchedulingConstraints = SchedulingConstraints()
    """The constraints on the nodes of its pods."""

    @property
    def kind(self) -> str:
        return self.resource.kind

    @property
    def has_pod_level_resources(self) -> bool:
        """Its template has CPU or memory for the pod as a whole."""
        return self.pod_resources is not None

    @property
    def is_long_running(self) -> bool:
        return self.resource.kind not in _BATCH_KINDS

    @property
    def key(self) -> WorkloadKey:
        return WorkloadKey(qualify_kind(self.resource.kind, self.resource.group), self.namespace, self.name)


class _PodResourcesWire(msgspec.Struct, frozen=True, gc=False):
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}


_SELECTORS = msgspec.json.Decoder(LabelSelectorWire)
_TEMPLATES = msgspec.json.Decoder(PodTemplateWire)
_POD_RESOURCES = msgspec.json.Decoder(_PodResourcesWire)
_TOLERATIONS = msgspec.json.Decoder(tuple[Toleration, ...])
_NODE_SELECTORS = msgspec.json.Decoder(dict[str, str])


def workload_projection(resource: Resource, cache: ProjectionCache | None = None) -> Projection[Workload]:
    """Read the workloads of one resource as compact records."""
    shared = cache or ProjectionCache()
    containers = ContainerProjector(shared)
    selectors = Memo(_format_selector)
    scheduling = Memo(_read_scheduling)

    read_state = state_reader(resource)
    is_custom = resource not in BUILT_IN

    def project(wire: Any) -> Workload:
        found: MetadataWire = wire.metadata
        state = read_state(wire)
        template = bytes(state.template)
        if is_custom and b"null" in template:
            # For built-in kinds the server removes nulls; templates of custom kinds may contain them.
            template = msgspec.json.encode(drop_nulls(msgspec.json.decode(template)))
        pod = _decode_or_default(_TEMPLATES, template, default=PodTemplateWire()).spec
        return Workload(
            resource=resource,
            namespace=shared.intern[found.namespace],
            name=found.name,
            uid=found.uid,
            version=parse_resource_version(found.resource_version),
            generation=found.generation,
            created=to_unix_seconds(found.creation_timestamp),
            deleting=found.deletion_timestamp is not None,
            owner=shared.read_owner(found.owner_references),
            labels=shared.read_labels(found.labels),
            annotations=shared.read_own_annotations(found.annotations),
            containers=_project_leniently(containers, pod) if is_custom else containers.project(pod),
            selector=selectors[bytes(state.selector)],
            replicas=state.replicas,
            updated_replicas=state.updated_replicas,
            ready_replicas=state.ready_replicas,
            update_strategy=shared.intern[state.update_strategy],
            is_spec_observed=_is_spec_observed(state, found),
            is_rolling_out=state.is_rolling_out,
            paused=state.paused,
            finished=state.finished,
            heap_flags=parse_heap_flags(template, shared.intern),
            pod_resources=_project_pod_resources(containers, pod.resources),
            partition=state.partition,
            scheduling=shared.intern[scheduling[bytes(pod.tolerations), bytes(pod.node_selector)]],
        )

    return Projection(wire_type=wire_type(resource), project=project)


def _decode_or_default(decoder: msgspec.json.Decoder[T], raw: msgspec.Raw | bytes, *, default: T) -> T:
    """Decode a part of an object; return the default if a custom kind gives it another structure."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        return default


def _project_leniently(containers: ContainerProjector, pod: ContainersWire) -> tuple[Container, ...]:
    """Project the containers of a custom kind's template; none if their resources are not quantities."""
    try:
        return containers.project(pod)
    except ValueError:
        return ()


def _project_pod_resources(containers: ContainerProjector, resources: msgspec.Raw) -> Resources | None:
    """Project the resources of the pod as a whole; None without CPU and memory, because huge pages and devices are
    not sized.
    """
    whole = _decode_or_default(_POD_RESOURCES, resources, default=_PodResourcesWire())
    if {"cpu", "memory"}.isdisjoint([*whole.requests, *whole.limits]):
        return None
    try:
        return containers.resources[bytes(resources)]
    except ValueError:  # the amounts of a custom kind need not be quantities
        return Resources()


def _read_scheduling(raw: tuple[bytes, bytes]) -> SchedulingConstraints:
    tolerations, selector = raw
    return SchedulingConstraints(
        _decode_or_default(_TOLERATIONS, tolerations, default=()),
        tuple(sorted(_decode_or_default(_NODE_SELECTORS, selector, default=dict[str, str]()).items())),
    )


def _is_spec_observed(state: WorkloadWireState, metadata: MetadataWire) -> bool:
    observed = state.observed_generation
    # Some kinds write it as text, others not at all.
    return observed is None or str(observed) == str(metadata.generation)


def _format_selector(raw: bytes) -> str:
    """Format a label selector as requests spell it."""
    selector = _decode_or_default(_SELECTORS, raw, default=LabelSelectorWire())
    terms = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for expression in selector.match_expressions:
        key, values = expression.key, f"({','.join(expression.values)})"
        spelled = {"In": f"{key} in {values}", "NotIn": f"{key} notin {values}", "Exists": key}
        terms.append(spelled.get(expression.operator, f"!{key}"))
    return ",".join(terms)
