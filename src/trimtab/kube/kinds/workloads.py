"""Workloads, folded to what sizing and actuation look at: whose pods, of what size, and whether they are being rolled.

One record describes every kind: the built-in ones, and any that has a pod template at `spec.template`, as the kinds with
a scale subresource do; `workload_kinds` has how each is written. Left out: the pods themselves (`pods`), and who matches
which policy.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec

from trimtab.kube.cache.interning import Memo
from trimtab.kube.cache.projection import (
    Folding,
    Labels,
    MetadataWire,
    Owner,
    Shape,
    seconds,
    version_number,
    without_nulls,
)
from trimtab.kube.kinds.heap_flags import HeapHint, heap_hints
from trimtab.kube.kinds.pods import Container, ContainerFolding, ContainersWire, Resources
from trimtab.kube.kinds.scheduling import Placing, Toleration
from trimtab.kube.kinds.workload_schemas import (
    KINDS,
    Selector,
    Template,
    WorkloadState,
    state_reader,
    wire_type,
)
from trimtab.kube.rest.resources import Resource

T = TypeVar("T")

BUILT_IN = KINDS
_RUN_NOW_AND_THEN = frozenset({"Job", "CronJob"})
_BUILT_IN_GROUPS = frozenset(resource.group for resource in BUILT_IN)


class WorkloadKey(NamedTuple):
    """Which workload; `kind` as policies spell it: Deployment, or Rollout.argoproj.io for a kind that is not built in."""

    kind: str
    namespace: str
    name: str

    @property
    def runs_on(self) -> bool:
        """Whether its pods run all the time; others' Jobs do not either."""
        return self.kind.partition(".")[0] not in _RUN_NOW_AND_THEN

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def kind_name(kind: str, group: str) -> str:
    """A kind as policies spell it."""
    return kind if group in _BUILT_IN_GROUPS else f"{kind}.{group}".rstrip(".")


class Workload(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One workload. `containers` are those of its pod template, `selector` finds its pods ("" when it has none)."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    version: int
    generation: int
    created: int
    deleting: bool
    owner: Owner | None
    labels: Labels
    annotations: Labels
    containers: tuple[Container, ...]
    selector: str
    replicas: int
    updated: int
    """How many of its pods are of the latest template,"""
    ready: int
    """and how many are ready."""
    update: str
    """How it replaces its pods when the template changes: RollingUpdate, Recreate, OnDelete; "" when not said."""
    observed: bool
    """Whether its controller has looked at the latest spec."""
    rolling: bool
    """Whether a rollout is under way: there are pods of an older template that will be replaced."""
    paused: bool
    """Whether its controller was told to hold: a paused Deployment, a suspended Job or CronJob."""
    finished: bool
    """Whether it has run to its end, as only a Job does."""
    heaps: tuple[HeapHint, ...] = ()
    """What its template says of heaps; of most there is nothing."""
    whole: Resources | None = None
    """What its template has for the pod as a whole, at `spec.resources`; None where that has no CPU and no memory."""
    partition: int = 0
    """How many of a StatefulSet's pods, the first ones, its rollouts leave as they are."""
    placing: Placing = Placing()
    """Where its pods may go."""

    @property
    def kind(self) -> str:
        return self.resource.kind

    @property
    def as_a_whole(self) -> bool:
        """Whether its template has CPU or memory for the pod as a whole."""
        return self.whole is not None

    @property
    def runs_on(self) -> bool:
        return self.key.runs_on

    @property
    def key(self) -> WorkloadKey:
        return WorkloadKey(kind_name(self.resource.kind, self.resource.group), self.namespace, self.name)


class _Whole(msgspec.Struct, frozen=True, gc=False):
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}


_SELECTORS = msgspec.json.Decoder(Selector)
_TEMPLATES = msgspec.json.Decoder(Template)
_WHOLES = msgspec.json.Decoder(_Whole)
_TOLERATIONS = msgspec.json.Decoder(tuple[Toleration, ...])
_NODE_SELECTORS = msgspec.json.Decoder(dict[str, str])


def workloads(resource: Resource, folding: Folding | None = None) -> Shape[Workload]:
    """Read the workloads of one resource as compact records."""
    shared = folding or Folding()
    containers = ContainerFolding(shared)
    selectors = Memo(_selector)
    placings = Memo(_placing)

    read_state = state_reader(resource)
    is_custom = resource not in BUILT_IN

    def fold(wire: Any) -> Workload:
        found: MetadataWire = wire.metadata
        state = read_state(wire)
        template = bytes(state.template)
        if is_custom and b"null" in template:
            # Of the built-in kinds the server has left them out; others' templates it may take as they come.
            template = msgspec.json.encode(without_nulls(msgspec.json.decode(template)))
        pod = _read(_TEMPLATES, template, otherwise=Template()).spec
        return Workload(
            resource=resource,
            namespace=shared.intern[found.namespace],
            name=found.name,
            uid=found.uid,
            version=version_number(found.resource_version),
            generation=found.generation,
            created=seconds(found.creation_timestamp),
            deleting=found.deletion_timestamp is not None,
            owner=shared.owner(found.owner_references),
            labels=shared.labels(found.labels),
            annotations=shared.our_annotations(found.annotations),
            containers=_fitting(containers, pod) if is_custom else containers.fold(pod),
            selector=selectors[bytes(state.selector)],
            replicas=state.replicas,
            updated=state.updated,
            ready=state.ready,
            update=shared.intern[state.update],
            observed=_observed(state, found),
            rolling=state.rolling,
            paused=state.paused,
            finished=state.finished,
            heaps=heap_hints(template, shared.intern),
            whole=_whole(containers, pod.resources),
            partition=state.partition,
            placing=shared.intern[placings[bytes(pod.tolerations), bytes(pod.node_selector)]],
        )

    return Shape(wire=wire_type(resource), fold=fold)


def _read(decoder: msgspec.json.Decoder[T], raw: msgspec.Raw | bytes, *, otherwise: T) -> T:
    """A part that a kind of somebody's own may spell in its own way: then it says nothing to us."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        return otherwise


def _fitting(containers: ContainerFolding, pod: ContainersWire) -> tuple[Container, ...]:
    """Fold the containers of a custom kind's template; none where their resources are no quantities."""
    try:
        return containers.fold(pod)
    except ValueError:
        return ()


def _whole(containers: ContainerFolding, resources: msgspec.Raw) -> Resources | None:
    """Fold what the pod has as a whole; None where CPU and memory are not among it: pages and devices are not ours to size."""
    whole = _read(_WHOLES, resources, otherwise=_Whole())
    if {"cpu", "memory"}.isdisjoint([*whole.requests, *whole.limits]):
        return None
    try:
        return containers.resources[bytes(resources)]
    except ValueError:  # a custom kind's amounts need be no quantities
        return Resources()


def _placing(raw: tuple[bytes, bytes]) -> Placing:
    tolerations, selector = raw
    return Placing(
        _read(_TOLERATIONS, tolerations, otherwise=()),
        tuple(sorted(_read(_NODE_SELECTORS, selector, otherwise=dict[str, str]()).items())),
    )


def _observed(state: WorkloadState, metadata: MetadataWire) -> bool:
    observed = state.observed_generation
    # Some kinds write it as text, others not at all.
    return observed is None or str(observed) == str(metadata.generation)


def _selector(raw: bytes) -> str:
    """A label selector as a request spells it."""
    selector = _read(_SELECTORS, raw, otherwise=Selector())
    terms = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for expression in selector.match_expressions:
        key, values = expression.key, f"({','.join(expression.values)})"
        spelled = {"In": f"{key} in {values}", "NotIn": f"{key} notin {values}", "Exists": key}
        terms.append(spelled.get(expression.operator, f"!{key}"))
    return ",".join(terms)
