"""NodeMetrics, folded to what is shown of a node: its pressure, the knobs that are turned, by which policy, and since when.

Left out: what pods use, which is most of each object; who wants that reads it as a usage source.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from trimtab.kube.records import MetadataWire, Shape, version_number


class TurnedKnob(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A setting of the kernel's that the agent holds, and why."""

    where: str = ""
    knob: str = ""
    value: str = ""
    why: str = ""


class NodeReport(msgspec.Struct, frozen=True, gc=False):
    """What an agent last told of its node."""

    name: str
    uid: str = ""
    version: int = 0
    at: float | None = None
    pressure: tuple[tuple[str, float], ...] = ()
    """The share of time, 0 to 1, in which some task waited for each resource."""
    knobs: tuple[TurnedKnob, ...] = ()
    policy: str = ""

    @property
    def namespace(self) -> str:
        return ""


class _StatusWire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    update_time: datetime | None = None
    pressure: dict[str, float | None] | None = None
    knobs: tuple[TurnedKnob, ...] = ()
    qos_policy: str | None = None


class _NodeMetricWire(msgspec.Struct, frozen=True, gc=False):
    metadata: MetadataWire = MetadataWire()
    status: _StatusWire = _StatusWire()


def node_reports() -> Shape[NodeReport]:
    """Read NodeMetrics as compact records."""

    def fold(wire: _NodeMetricWire) -> NodeReport:
        metadata, status = wire.metadata, wire.status
        return NodeReport(
            name=metadata.name,
            uid=metadata.uid,
            version=version_number(metadata.resource_version),
            at=status.update_time.timestamp() if status.update_time else None,
            pressure=tuple(
                (name, each) for name, each in (status.pressure or {}).items() if each is not None
            ),
            knobs=status.knobs,
            policy=status.qos_policy or "",
        )

    return Shape(wire=_NodeMetricWire, fold=fold)
