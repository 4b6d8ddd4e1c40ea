"""The JSON structure of each kind of workload: the fields that are read, with the types of that kind.

Kinds share field names but not their types: `status.active` counts the pods of a Job and lists the Jobs of a CronJob.
So each built-in kind has its own struct, which tests compare with the schema that the API server publishes. A custom
kind has no reliable schema: it is decoded by the struct of the built-in kind of the same name, or as a scalable kind,
and a field of another type counts as absent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from trimtab.kube.cache.projection import MetadataWire, RawLabels, decoded_as
from trimtab.kube.kinds.nodes import Toleration
from trimtab.kube.kinds.pods import ContainersWire, RawResources
from trimtab.kube.rest.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
)

S = TypeVar("S", bound=msgspec.Struct)

_FINISHED_CONDITIONS = frozenset({"Complete", "Failed"})


class WorkloadWireState(NamedTuple):
    """The state of a workload of any kind."""

    template: msgspec.Raw = msgspec.Raw(b"{}")
    selector: msgspec.Raw = msgspec.Raw(b"{}")
    replicas: int = 1
    """The desired number of pods."""
    updated_replicas: int = 0
    """The number of pods that have the latest template."""
    ready_replicas: int = 0
    """The number of pods that are ready."""
    update_strategy: str = ""
    """The way it replaces its pods when the template changes; empty if not specified."""
    partition: int = 0
    is_rolling_out: bool = False
    paused: bool = False
    finished: bool = False
    observed_generation: int | str | None = None


class _Expression(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelectorWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A label selector."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[_Expression, ...] = ()


class PodSpecWire(ContainersWire, rename="camel", frozen=True, gc=False):
    """The spec of a pod template."""

    resources: RawResources = msgspec.Raw(b"{}")
    tolerations: Annotated[msgspec.Raw, decoded_as(tuple[Toleration, ...])] = msgspec.Raw(b"[]")
    node_selector: RawLabels = msgspec.Raw(b"{}")


class PodTemplateWire(msgspec.Struct, frozen=True, gc=False):
    """A pod template."""

    spec: PodSpecWire = PodSpecWire()


RawSelector = Annotated[msgspec.Raw, decoded_as(LabelSelectorWire)]
RawTemplate = Annotated[msgspec.Raw, decoded_as(PodTemplateWire)]


class _RollingUpdate(msgspec.Struct, frozen=True, gc=False):
    partition: int = 0


class _Update(msgspec.Struct, frozen=True, gc=False):
    type: str = ""


class _PartitionedUpdate(msgspec.Struct, rename="camel", frozen=True, gc=False):
    type: str = ""
    rolling_update: _RollingUpdate | None = None


class _Pods(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The part of a spec that most kinds share."""

    selector: RawSelector = msgspec.Raw(b"{}")
    template: RawTemplate = msgspec.Raw(b"{}")


class _DeploymentSpec(_Pods, rename="camel", frozen=True, gc=False):
    replicas: int = 1
    paused: bool = False
    strategy: _Update = _Update()


class _ReplicaStatus(msgspec.Struct, rename="camel", frozen=True, gc=False):
    observed_generation: int | None = None
    replicas: int = 0
    ready_replicas: int = 0


class _DeploymentStatus(_ReplicaStatus, rename="camel", frozen=True, gc=False):
    updated_replicas: int = 0


class _Deployment(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: _DeploymentSpec = _DeploymentSpec()
    status: _DeploymentStatus = _DeploymentStatus()

    def state(self) -> WorkloadWireState:
        spec, status = self.spec, self.status
        return WorkloadWireState(
            template=spec.template,
            selector=spec.selector,
            replicas=spec.replicas,
            updated_replicas=status.updated_replicas,
            ready_replicas=status.ready_replicas,
            update_strategy=spec.strategy.type,
            # A Deployment that scales up has fewer pods than desired but no rollout: only pods of an older template
            # count.
            is_rolling_out=status.replicas > status.updated_replicas,
            paused=spec.paused,
            observed_generation=status.observed_generation,
        )


class _StatefulSetSpec(_Pods, rename="camel", frozen=True, gc=False):
    replicas: int = 1
    update_strategy: _PartitionedUpdate = _PartitionedUpdate()


class _StatefulSetStatus(_DeploymentStatus, rename="camel", frozen=True, gc=False):
    current_revision: str = ""
    update_revision: str = ""


class _StatefulSet(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: _StatefulSetSpec = _StatefulSetSpec()
    status: _StatefulSetStatus = _StatefulSetStatus()

    def state(self) -> WorkloadWireState:
        spec, status, update = self.spec, self.status, self.spec.update_strategy
        by_itself = update.type != "OnDelete"
        partition = update.rolling_update.partition if by_itself and update.rolling_update else 0
        return WorkloadWireState(
            template=spec.template,
            selector=spec.selector,
            replicas=spec.replicas,
            updated_replicas=status.updated_replicas,
            ready_replicas=status.ready_replicas,
            update_strategy=update.type,
            partition=partition,
            is_rolling_out=by_itself
            and status.current_revision != status.update_revision
            and status.updated_replicas < status.replicas - partition,
            observed_generation=status.observed_generation,
        )


class _DaemonSetSpec(_Pods, rename="camel", frozen=True, gc=False):
    update_strategy: _Update = _Update()


class _DaemonSetStatus(msgspec.Struct, rename="camel", frozen=True, gc=False):
    observed_generation: int | None = None
    current_number_scheduled: int = 0
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_ready: int = 0


class _DaemonSet(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: _DaemonSetSpec = _DaemonSetSpec()
    status: _DaemonSetStatus = _DaemonSetStatus()

    def state(self) -> WorkloadWireState:
        spec, status = self.spec, self.status
        return WorkloadWireState(
            template=spec.template,
            selector=spec.selector,
            replicas=status.desired_number_scheduled,
            updated_replicas=status.updated_number_scheduled,
            ready_replicas=status.number_ready,
            update_strategy=spec.update_strategy.type,
            is_rolling_out=spec.update_strategy.type != "OnDelete"
            and status.updated_number_scheduled < status.current_number_scheduled,
            observed_generation=status.observed_generation,
        )


class _ReplicaSetSpec(_Pods, frozen=True, gc=False):
    replicas: int = 1


class _ReplicaSet(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: _ReplicaSetSpec = _ReplicaSetSpec()
    status: _ReplicaStatus = _ReplicaStatus()

    def state(self) -> WorkloadWireState:
        spec, status = self.spec, self.status
        return WorkloadWireState(
            template=spec.template,
            selector=spec.selector,
            replicas=spec.replicas,
            updated_replicas=status.replicas,
            ready_replicas=status.ready_replicas,
            observed_generation=status.observed_generation,
        )


class _Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class _JobTemplateSpec(msgspec.Struct, frozen=True, gc=False):
    template: RawTemplate = msgspec.Raw(b"{}")
    parallelism: int = 1
    completions: int | None = None

    @property
    def parallel_pods(self) -> int:
        """The number of pods that run at the same time."""
        return self.parallelism if self.completions is None else min(self.parallelism, self.completions)


class _JobSpec(_JobTemplateSpec, frozen=True, gc=False):
    selector: RawSelector = msgspec.Raw(b"{}")
    suspend: bool = False


class _JobStatus(msgspec.Struct, frozen=True, gc=False):
    active: int = 0
    ready: int = 0
    conditions: tuple[_Condition, ...] = ()


class _Job(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()

    def state(self) -> WorkloadWireState:
        spec, status = self.spec, self.status
        return WorkloadWireState(
            template=spec.template,
            selector=spec.selector,
            replicas=spec.parallel_pods,
            updated_replicas=status.active,
            ready_replicas=status.ready,
            paused=spec.suspend,
            finished=any(
                each.status == "True" and each.type in _FINISHED_CONDITIONS for each in status.conditions
            ),
        )


class _JobTemplate(msgspec.Struct, frozen=True, gc=False):
    spec: _JobTemplateSpec = _JobTemplateSpec()


class _CronJobSpec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    suspend: bool = False
    job_template: _JobTemplate = _JobTemplate()


class _CronJob(msgspec.Struct, frozen=True, gc=False):
    """A CronJob; its status is not read, because its Jobs count its pods."""

    metadata: MetadataWire = MetadataWire()
    spec: _CronJobSpec = _CronJobSpec()

    def state(self) -> WorkloadWireState:
        job = self.spec.job_template.spec
        return WorkloadWireState(template=job.template, replicas=job.parallel_pods, paused=self.spec.suspend)


class _ScalableSpec(_Pods, rename="camel", frozen=True, gc=False):
    replicas: int = 1
    paused: bool = False
    suspend: bool = False
    update_strategy: _Update = _Update()


class _ScalableStatus(msgspec.Struct, rename="camel", frozen=True, gc=False):
    observed_generation: int | str | None = None  # Argo Rollouts write it as text
    updated_replicas: int = 0
    ready_replicas: int = 0


class _Scalable(msgspec.Struct, frozen=True, gc=False):
    """Any kind with a scale subresource, by the field names that such kinds usually share."""

    metadata: MetadataWire = MetadataWire()
    spec: _ScalableSpec = _ScalableSpec()
    status: _ScalableStatus = _ScalableStatus()

    def state(self) -> WorkloadWireState:
        spec, status = self.spec, self.status
        return WorkloadWireState(
            template=spec.template,
            selector=spec.selector,
            replicas=spec.replicas,
            updated_replicas=status.updated_replicas,
            ready_replicas=status.ready_replicas,
            update_strategy=spec.update_strategy.type,
            paused=spec.paused or spec.suspend,
            observed_generation=status.observed_generation,
        )


_WIRE_TYPES: dict[Resource, type[Any]] = {
    DEPLOYMENTS: _Deployment,
    STATEFUL_SETS: _StatefulSet,
    DAEMON_SETS: _DaemonSet,
    REPLICA_SETS: _ReplicaSet,
    JOBS: _Job,
    CRON_JOBS: _CronJob,
}
BUILT_IN_KINDS = tuple(_WIRE_TYPES)
"""The built-in kinds."""
_WIRE_TYPE_BY_KIND = {resource.kind: wire for resource, wire in _WIRE_TYPES.items()}


class _Custom(msgspec.Struct, frozen=True, gc=False):
    """An object of a custom kind; only its metadata has a guaranteed structure."""

    metadata: MetadataWire = MetadataWire()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: msgspec.Raw = msgspec.Raw(b"{}")


def wire_type(resource: Resource) -> type[Any]:
    """Return the struct that objects of a resource are decoded into."""
    return _WIRE_TYPES.get(resource, _Custom)


def state_reader(resource: Resource) -> Callable[[Any], WorkloadWireState]:
    """Return the function that reads the state of one decoded object of a resource."""
    if resource in _WIRE_TYPES:
        return _read_state
    kind = _WIRE_TYPE_BY_KIND.get(resource.kind, _Scalable)
    parts = {
        field.name: field.type for field in msgspec.structs.fields(kind) if field.name in {"spec", "status"}
    }

    def read(wire: _Custom) -> WorkloadWireState:
        found = kind(**{name: decode_leniently(part, getattr(wire, name)) for name, part in parts.items()})
        return _read_state(found)

    return read


def _read_state(wire: Any) -> WorkloadWireState:
    state: WorkloadWireState = wire.state()
    return state


def decode_leniently(kind: type[S], raw: msgspec.Raw) -> S:
    """Decode the fields that match a struct; a field of another type counts as absent."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError:
        pass
    try:
        parts = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return kind()
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        part = parts.get(field.encode_name)
        if part is None:
            continue
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            found[field.name] = decode_leniently(field.type, part)
            continue
        try:
            found[field.name] = msgspec.json.decode(part, type=field.type)
        except msgspec.ValidationError:
            continue
    return kind(**found)
