"""HorizontalPodAutoscalers (autoscaling/v2), projected to their target and the requests that they depend on.

Metrics that are not a share of a request (pods, objects, external, average values) are left out, because a resize
does not change them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from trimtab.kube.cache.projection import MetadataWire, Projection, ProjectionCache, parse_resource_version


class AutoscalerTarget(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The object that an autoscaler targets, in the autoscaler's namespace."""

    kind: str
    group: str
    name: str


class UtilizationTarget(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The share of the request, in percent, at which an autoscaler keeps usage."""

    resource: Literal["cpu", "memory"]
    target: int
    container: str = ""
    """The container that the target is about; empty for all containers of each pod."""
    current: int | None = None
    """The utilization that the autoscaler last observed; None if it has not observed any."""


class HorizontalPodAutoscaler(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One HorizontalPodAutoscaler."""

    namespace: str
    name: str
    uid: str
    version: int
    target: AutoscalerTarget
    min_replicas: int
    max_replicas: int
    utilization_targets: tuple[UtilizationTarget, ...]


class AutoscalerTargetWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A reference to an object, as in every autoscaler's spec."""

    api_version: str = ""
    kind: str = ""
    name: str = ""

    def to_target(self) -> AutoscalerTarget:
        group, slash, _ = self.api_version.rpartition("/")
        return AutoscalerTarget(self.kind, group if slash else "", self.name)


class _AmountWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    average_utilization: int | None = None


class _ResourceTarget(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    target: _AmountWire = _AmountWire()


class _ContainerTarget(_ResourceTarget, frozen=True, gc=False):
    container: str = ""


class _MetricWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    resource: _ResourceTarget | None = None
    container_resource: _ContainerTarget | None = None


class _ResourceReading(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    current: _AmountWire = _AmountWire()


class _ContainerReading(_ResourceReading, frozen=True, gc=False):
    container: str = ""


class _CurrentWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    resource: _ResourceReading | None = None
    container_resource: _ContainerReading | None = None


class _SpecWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    scale_target_ref: AutoscalerTargetWire = AutoscalerTargetWire()
    min_replicas: int | None = None
    max_replicas: int = 0
    metrics: tuple[_MetricWire, ...] = ()


class _StatusWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    current_metrics: tuple[_CurrentWire, ...] | None = None


class _HpaWire(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: _SpecWire = _SpecWire()
    status: _StatusWire = _StatusWire()


def hpa_projection(cache: ProjectionCache | None = None) -> Projection[HorizontalPodAutoscaler]:
    """Read HorizontalPodAutoscalers as compact records."""
    shared = cache or ProjectionCache()

    def project(wire: _HpaWire) -> HorizontalPodAutoscaler:
        found, spec = wire.metadata, wire.spec
        return HorizontalPodAutoscaler(
            namespace=shared.intern[found.namespace],
            name=found.name,
            uid=found.uid,
            version=parse_resource_version(found.resource_version),
            target=spec.scale_target_ref.to_target(),
            min_replicas=1 if spec.min_replicas is None else spec.min_replicas,
            max_replicas=spec.max_replicas,
            utilization_targets=shared.intern[_read_utilization_targets(wire)],
        )

    return Projection(wire_type=_HpaWire, project=project)


def _read_utilization_targets(wire: _HpaWire) -> tuple[UtilizationTarget, ...]:
    observed: dict[tuple[str, str], int | None] = {}
    for current in wire.status.current_metrics or ():
        if current.resource:
            observed[current.resource.name, ""] = current.resource.current.average_utilization
        if each := current.container_resource:
            observed[each.name, each.container] = each.current.average_utilization
    found = []
    for metric in wire.spec.metrics:
        read = metric.resource or metric.container_resource
        if read is None or read.target.average_utilization is None:
            continue
        container = read.container if isinstance(read, _ContainerTarget) else ""
        match read.name:
            case "cpu" | "memory" as resource:
                current_share = observed.get((resource, container))
                found.append(
                    UtilizationTarget(resource, read.target.average_utilization, container, current_share)
                )
    return tuple(found)
