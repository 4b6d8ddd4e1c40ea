"""Workloads, folded to what sizing and actuation look at: whose pods, of what size, and whether they are being rolled.

One shape reads every kind: the built-in ones, and any that has a pod template at `spec.template`, as the kinds with
a scale subresource do. Left out: the pods themselves (`pods`), and who matches which policy.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import msgspec

from trimtab.kube.heaps import HeapHint, heap_hints
from trimtab.kube.intern import Memo
from trimtab.kube.placing import Placing, Toleration
from trimtab.kube.pods import Container, ContainerFolding, ContainersWire
from trimtab.kube.records import (
    Folding,
    Labels,
    MetadataWire,
    Owner,
    Shape,
    seconds,
    version_number,
    without_nulls,
)
from trimtab.kube.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
)

T = TypeVar("T")

BUILT_IN = (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, REPLICA_SETS, JOBS, CRON_JOBS)
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
    as_a_whole: bool = False
    """Whether its template has CPU or memory for the pod as a whole, at `spec.resources`."""
    partition: int = 0
    """How many of a StatefulSet's pods, the first ones, its rollouts leave as they are."""
    placing: Placing = Placing()
    """Where its pods may go."""

    @property
    def kind(self) -> str:
        return self.resource.kind

    @property
    def runs_on(self) -> bool:
        return self.key.runs_on

    @property
    def key(self) -> WorkloadKey:
        return WorkloadKey(kind_name(self.resource.kind, self.resource.group), self.namespace, self.name)


class _Expression(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class _Selector(msgspec.Struct, rename="camel", frozen=True, gc=False):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[_Expression, ...] = ()


class _RollingUpdate(msgspec.Struct, frozen=True, gc=False):
    partition: int = 0


class _Update(msgspec.Struct, rename="camel", frozen=True, gc=False):
    type: str = ""
    rolling_update: msgspec.Raw = msgspec.Raw(b"{}")


class _PodSpec(ContainersWire, rename="camel", frozen=True, gc=False):
    resources: msgspec.Raw = msgspec.Raw(b"{}")
    tolerations: msgspec.Raw = msgspec.Raw(b"[]")
    node_selector: msgspec.Raw = msgspec.Raw(b"{}")


class _Template(msgspec.Struct, frozen=True, gc=False):
    spec: _PodSpec = _PodSpec()


class _Whole(msgspec.Struct, frozen=True, gc=False):
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}


class _JobSpec(msgspec.Struct, frozen=True, gc=False):
    template: msgspec.Raw = msgspec.Raw(b"{}")


class _JobTemplate(msgspec.Struct, frozen=True, gc=False):
    spec: _JobSpec = _JobSpec()


class _Spec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    replicas: int | None = None
    parallelism: int | None = None
    paused: bool = False
    suspend: bool | None = None
    selector: msgspec.Raw = msgspec.Raw(b"{}")
    template: msgspec.Raw = msgspec.Raw(b"{}")
    job_template: _JobTemplate | None = None
    strategy: msgspec.Raw = msgspec.Raw(b"{}")
    update_strategy: msgspec.Raw = msgspec.Raw(b"{}")


class _Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, rename="camel", frozen=True, gc=False):
    observed_generation: Any = None
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    current_number_scheduled: int = 0
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_ready: int = 0
    active: int = 0
    ready: int | None = None
    conditions: msgspec.Raw = msgspec.Raw(b"[]")
    current_revision: str = ""
    update_revision: str = ""


_SELECTORS = msgspec.json.Decoder(_Selector)
_UPDATES = msgspec.json.Decoder(_Update)
_PARTITIONS = msgspec.json.Decoder(_RollingUpdate)
_TEMPLATES = msgspec.json.Decoder(_Template)
_WHOLES = msgspec.json.Decoder(_Whole)
_CONDITIONS = msgspec.json.Decoder(list[_Condition])
_TOLERATIONS = msgspec.json.Decoder(tuple[Toleration, ...])
_NODE_SELECTORS = msgspec.json.Decoder(dict[str, str])


class _WorkloadWire(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: _Spec = _Spec()
    status: _Status = _Status()


def workloads(resource: Resource, folding: Folding | None = None) -> Shape[Workload]:
    """Read the workloads of one resource as compact records."""
    shared = folding or Folding()
    containers = ContainerFolding(shared)
    selectors = Memo(_selector)
    placings = Memo(_placing)

    def fold(wire: _WorkloadWire) -> Workload:
        found, spec = wire.metadata, wire.spec
        template = bytes(spec.job_template.spec.template if spec.job_template else spec.template)
        if b"null" in template and resource not in BUILT_IN:
            # Of the built-in kinds the server has left them out; others' templates it may take as they come.
            template = msgspec.json.encode(without_nulls(msgspec.json.decode(template)))
        update = _read(
            _UPDATES,
            spec.strategy if resource.kind == "Deployment" else spec.update_strategy,
            otherwise=_Update(),
        )
        pod = _read(_TEMPLATES, template, otherwise=_Template()).spec
        partition = _partition(resource, update)
        wanted, updated, ready = _pods(resource, wire)
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
            containers=containers.fold(pod),
            selector=selectors[bytes(spec.selector)],
            replicas=wanted,
            updated=updated,
            ready=ready,
            update=shared.intern[update.type],
            observed=_observed(wire),
            rolling=_rolling(resource, wire, update, partition),
            paused=spec.paused or bool(spec.suspend),
            finished=resource.kind == "Job" and _has_ended(wire.status.conditions),
            heaps=heap_hints(template, shared.intern),
            as_a_whole=_is_as_a_whole(pod.resources),
            partition=partition,
            placing=shared.intern[placings[bytes(pod.tolerations), bytes(pod.node_selector)]],
        )

    return Shape(wire=_WorkloadWire, fold=fold)


def _read(decoder: msgspec.json.Decoder[T], raw: msgspec.Raw | bytes, *, otherwise: T) -> T:
    """A part that a kind of somebody's own may spell in its own way: then it says nothing to us."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        return otherwise


def _pods(resource: Resource, wire: _WorkloadWire) -> tuple[int, int, int]:
    """How many pods are wanted, how many are of the latest template, and how many are ready."""
    spec, status = wire.spec, wire.status
    match resource.kind:
        case "DaemonSet":
            return status.desired_number_scheduled, status.updated_number_scheduled, status.number_ready
        case "Job":
            return _or_one(spec.parallelism), status.active, status.ready or 0
        case "ReplicaSet":
            return _or_one(spec.replicas), status.replicas, status.ready_replicas
    return _or_one(spec.replicas), status.updated_replicas, status.ready_replicas


def _or_one(count: int | None) -> int:
    return 1 if count is None else count


def _is_as_a_whole(resources: msgspec.Raw) -> bool:
    """Whether CPU or memory is among what the pod has; pages and devices are not ours to size anyway."""
    whole = _read(_WHOLES, resources, otherwise=_Whole())
    return not {"cpu", "memory"}.isdisjoint([*whole.requests, *whole.limits])


def _placing(raw: tuple[bytes, bytes]) -> Placing:
    tolerations, selector = raw
    return Placing(
        _read(_TOLERATIONS, tolerations, otherwise=()),
        tuple(sorted(_read(_NODE_SELECTORS, selector, otherwise=dict[str, str]()).items())),
    )


def _has_ended(conditions: msgspec.Raw) -> bool:
    return any(
        condition.status == "True" and condition.type in {"Complete", "Failed"}
        for condition in _read(_CONDITIONS, conditions, otherwise=[])
    )


def _observed(wire: _WorkloadWire) -> bool:
    observed = wire.status.observed_generation
    # Some kinds write it as text, others not at all.
    return observed is None or str(observed) == str(wire.metadata.generation)


def _partition(resource: Resource, update: _Update) -> int:
    if resource.kind != "StatefulSet" or update.type == "OnDelete":
        return 0
    return _read(_PARTITIONS, update.rolling_update, otherwise=_RollingUpdate()).partition


def _rolling(resource: Resource, wire: _WorkloadWire, update: _Update, partition: int) -> bool:
    """A workload that grows has fewer pods than it wants, and yet is not rolled: only older pods tell."""
    status = wire.status
    match resource.kind:
        case "Deployment":
            return status.replicas > status.updated_replicas
        case "StatefulSet" if update.type != "OnDelete" and status.current_revision != status.update_revision:
            return status.updated_replicas < status.replicas - partition
        case "DaemonSet" if update.type != "OnDelete":
            return status.updated_number_scheduled < status.current_number_scheduled
    return False


def _selector(raw: bytes) -> str:
    """A label selector as a request spells it."""
    selector = _read(_SELECTORS, raw, otherwise=_Selector())
    terms = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for expression in selector.match_expressions:
        key, values = expression.key, f"({','.join(expression.values)})"
        spelled = {"In": f"{key} in {values}", "NotIn": f"{key} notin {values}", "Exists": key}
        terms.append(spelled.get(expression.operator, f"!{key}"))
    return ",".join(terms)
