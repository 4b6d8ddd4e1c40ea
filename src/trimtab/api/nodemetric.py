"""NodeMetric: what a node and its pods use, as its agent reports it, one object a node, named like the node.

The spec tells the agent how to collect; the status is the agent's. Aggregates appear only once samples span
enough of their window, so a missing one means "not known yet" and never "nothing used".
"""

from typing import Annotated, Literal

from pydantic import Field

from trimtab.api.duration import Duration
from trimtab.api.fields import MAX_CONTAINERS, DurationRange, Int, Number, Text, Time, UniqueItems
from trimtab.api.kind import AGE_COLUMN, Kind, KindNames, PrinterColumn
from trimtab.api.model import ApiModel, StatusModel, ValidationRule
from trimtab.api.quantity import Quantity

Window = Annotated[Duration, DurationRange("1m", "24h")]

MAX_PODS = 1000
MAX_KNOBS = 32


class AggregatePolicy(ApiModel):
    """Over which windows usage is aggregated."""

    durations: Annotated[tuple[Window, ...], Field(min_length=1, max_length=8), UniqueItems()] = (
        Duration.parse("5m"),
        Duration.parse("10m"),
        Duration.parse("30m"),
    )
    """The windows, such as 5m, 10m and 30m."""


class MetricCollectPolicy(ApiModel):
    """How usage is collected and reported."""

    rules = (
        ValidationRule(
            field="reportIntervalSeconds",
            message="must not exceed aggregateDurationSeconds",
            detail="{report_interval_seconds} > {aggregate_duration_seconds}",
            predicate=lambda self: self.report_interval_seconds <= self.aggregate_duration_seconds,
            cel="self.reportIntervalSeconds <= self.aggregateDurationSeconds",
        ),
    )

    aggregate_duration_seconds: Annotated[Int, Field(ge=10, le=86400)] = 300
    """Over how many seconds the plain usage is averaged."""

    report_interval_seconds: Annotated[Int, Field(ge=1, le=3600)] = 60
    """How many seconds lie between two reports."""

    node_aggregate_policy: AggregatePolicy = AggregatePolicy()
    """Over which windows the node's usage is aggregated."""


class NodeMetricSpec(ApiModel):
    """How usage is to be collected."""

    metric_collect_policy: MetricCollectPolicy = MetricCollectPolicy()
    """How usage is collected and reported."""


class ResourceUsage(StatusModel):
    """An amount of CPU and memory."""

    cpu: Quantity | None = None
    """CPU, in cores."""

    memory: Quantity | None = None
    """Memory, without the page cache."""


class UsageAggregates(StatusModel):
    """How usage was spread over a window."""

    avg: ResourceUsage | None = None
    """The average."""

    p50: ResourceUsage | None = None
    """The median."""

    p90: ResourceUsage | None = None
    """The 90th percentile."""

    p95: ResourceUsage | None = None
    """The 95th percentile."""

    p99: ResourceUsage | None = None
    """The 99th percentile."""


class AggregatedUsage(StatusModel):
    """Usage over one window."""

    duration: Duration
    """The window."""

    usage: UsageAggregates
    """How usage was spread over it."""


Windows = Annotated[tuple[AggregatedUsage, ...], Field(max_length=8), UniqueItems(("duration",))]


class NodeUsage(StatusModel):
    """What the node as a whole uses."""

    node_usage: ResourceUsage | None = None
    """All of the node."""

    aggregated_node_usages: Windows = ()
    """All of the node, over each window that has enough samples."""

    system_usage: ResourceUsage | None = None
    """The system's own part: the node without its pods."""

    aggregated_system_usages: Windows = ()
    """The system's own part, over each window that has enough samples."""

    best_effort_usage: ResourceUsage | None = None
    """The part of best-effort pods."""


class ContainerUsage(StatusModel):
    """What one container uses."""

    name: Text
    """The name of the container."""

    usage: ResourceUsage
    """What it uses."""


class PodUsage(StatusModel):
    """What one pod uses."""

    namespace: Text
    """The namespace of the pod."""

    name: Text
    """The name of the pod."""

    pod_usage: ResourceUsage
    """All containers of the pod together."""

    containers: Annotated[
        tuple[ContainerUsage, ...], Field(max_length=MAX_CONTAINERS), UniqueItems(("name",))
    ] = ()
    """What each of its containers uses, or each of the first of very many."""


class ReclaimableMetric(StatusModel):
    """What could be lent out."""

    resource: ResourceUsage
    """Requested by production pods and, by the prediction of their peaks, not needed."""


class Pressure(StatusModel):
    """For how much of the last minute tasks waited, from 0 to 1."""

    cpu: Number | None = None
    """Some task waited for CPU."""

    memory: Number | None = None
    """Some task waited for memory."""

    io: Number | None = None
    """Some task waited for a device."""


class KnobStatus(StatusModel):
    """A setting of the kernel's that the agent holds."""

    where: Text
    """The cgroup, or machine."""

    knob: Text
    """Its name."""

    value: Text
    """What it is set to."""

    strategy: Text
    """Which of the policy's strategies asked for it."""

    why: Text
    """The numbers that made it."""


class NodeMetricStatus(StatusModel):
    """What was observed."""

    update_time: Time | None = None
    """When the agent last reported."""

    node_metric: NodeUsage | None = None
    """What the node as a whole uses."""

    pods_metric: Annotated[
        tuple[PodUsage, ...], Field(max_length=MAX_PODS), UniqueItems(("namespace", "name"))
    ] = ()
    """What each pod uses."""

    prod_reclaimable_metric: ReclaimableMetric | None = None
    """What production pods have to spare."""

    pressure: Pressure | None = None
    """For how much of the time tasks waited; missing where the kernel does not tell."""

    knobs: Annotated[tuple[KnobStatus, ...], Field(max_length=MAX_KNOBS), UniqueItems(("where", "knob"))] = ()
    """What the agent has set in the kernel, and why: the 32 that reach furthest."""

    qos_policy: Text | None = None
    """The name of the NodeQoSPolicy that the agent acts by; missing where none holds, or where it only looks."""


class NodeMetric(Kind):
    """What a node and its pods use, as its agent reports it; named like the node."""

    names = KindNames(
        plural="nodemetrics",
        short=("nm",),
        namespaced=False,
        columns=(
            PrinterColumn("CPU", ".status.nodeMetric.nodeUsage.cpu"),
            PrinterColumn("Memory", ".status.nodeMetric.nodeUsage.memory"),
            PrinterColumn("Reclaimable CPU", ".status.prodReclaimableMetric.resource.cpu", priority=1),
            PrinterColumn("Reclaimable Memory", ".status.prodReclaimableMetric.resource.memory", priority=1),
            PrinterColumn("Policy", ".status.qosPolicy"),
            PrinterColumn("Updated", ".status.updateTime", "date"),
            AGE_COLUMN,
        ),
    )

    kind: Literal["NodeMetric"] = "NodeMetric"
    spec: NodeMetricSpec = NodeMetricSpec()
    status: NodeMetricStatus = NodeMetricStatus()
