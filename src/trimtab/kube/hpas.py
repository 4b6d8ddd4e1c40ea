"""HorizontalPodAutoscalers (autoscaling/v2), folded to what they scale and which requests they look at.

Metrics that are no share of a request (pods', objects', external ones, average values) are left out: a change of
size does not move them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from trimtab.kube.records import Folding, MetadataWire, Shape, version_number


class Target(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The object that an autoscaler is about, in its own namespace."""

    kind: str
    group: str
    name: str


class Utilisation(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A share of the request, in percent, that an autoscaler holds usage to."""

    resource: Literal["cpu", "memory"]
    target: int
    container: str = ""
    """Only this container of each pod; all of them when empty."""
    current: int | None = None
    """What it last saw; None when it has not."""


class Hpa(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One HorizontalPodAutoscaler."""

    namespace: str
    name: str
    uid: str
    version: int
    target: Target
    min_replicas: int
    max_replicas: int
    utilisations: tuple[Utilisation, ...]


class TargetWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A reference to an object, as every autoscaler has it."""

    api_version: str = ""
    kind: str = ""
    name: str = ""

    def target(self) -> Target:
        group, slash, _ = self.api_version.rpartition("/")
        return Target(self.kind, group if slash else "", self.name)


class _AmountWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    average_utilization: int | None = None


class _ResourceWire(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    container: str = ""
    target: _AmountWire = _AmountWire()
    current: _AmountWire = _AmountWire()


class _MetricWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    resource: _ResourceWire | None = None
    container_resource: _ResourceWire | None = None

    def read(self) -> _ResourceWire | None:
        return self.resource or self.container_resource


class _SpecWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    scale_target_ref: TargetWire = TargetWire()
    min_replicas: int | None = None
    max_replicas: int = 0
    metrics: tuple[_MetricWire, ...] = ()


class _StatusWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    current_metrics: tuple[_MetricWire, ...] | None = None


class _HpaWire(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    spec: _SpecWire = _SpecWire()
    status: _StatusWire = _StatusWire()


def hpas(folding: Folding | None = None) -> Shape[Hpa]:
    """Read HorizontalPodAutoscalers as compact records."""
    shared = folding or Folding()

    def fold(wire: _HpaWire) -> Hpa:
        found, spec = wire.metadata, wire.spec
        return Hpa(
            namespace=shared.intern[found.namespace],
            name=found.name,
            uid=found.uid,
            version=version_number(found.resource_version),
            target=spec.scale_target_ref.target(),
            min_replicas=1 if spec.min_replicas is None else spec.min_replicas,
            max_replicas=spec.max_replicas,
            utilisations=shared.intern[_utilisations(wire)],
        )

    return Shape(wire=_HpaWire, fold=fold)


def _utilisations(wire: _HpaWire) -> tuple[Utilisation, ...]:
    seen = {
        (read.name, read.container): read.current.average_utilization
        for metric in wire.status.current_metrics or ()
        if (read := metric.read())
    }
    found = []
    for metric in wire.spec.metrics:
        read = metric.read()
        if read is None or read.target.average_utilization is None:
            continue
        match read.name:
            case "cpu" | "memory" as resource:
                current = seen.get((resource, read.container))
                found.append(Utilisation(resource, read.target.average_utilization, read.container, current))
    return tuple(found)
