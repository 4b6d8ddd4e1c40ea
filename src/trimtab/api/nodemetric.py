"""NodeMetric: the resource usage of a node and its pods, as its agent reports it; one object per node, named like the
node.

The spec configures the agent; the agent writes the status. An aggregate appears only once samples cover enough of its
window, so a missing one means "not known yet" and never "no usage".
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
    """The windows over which usage is aggregated."""

    durations: Annotated[tuple[Window, ...], Field(min_length=1, max_length=8), UniqueItems()] = (
        Duration.parse("5m"),
        Duration.parse("10m"),
        Duration.parse("30m"),
    )
    """The windows, such as 5m, 10m and 30m."""


class MetricCollectPolicy(ApiModel):
    """The settings for collecting and reporting usage."""

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
    """The number of seconds over which the plain usage is averaged."""

    report_interval_seconds: Annotated[Int, Field(ge=1, le=3600)] = 60
    """The number of seconds between two reports."""

    node_aggregate_policy: AggregatePolicy = AggregatePolicy()
    """The windows over which the node's usage is aggregated."""


class NodeMetricSpec(ApiModel):
    """The settings for collecting usage."""

    metric_collect_policy: MetricCollectPolicy = MetricCollectPolicy()
    """The settings for collecting and reporting usage."""


class ResourceUsage(StatusModel):
    """An amount of CPU and memory."""

    cpu: Quantity | None = None
    """CPU, in cores."""

    memory: Quantity | None = None
    """Memory, without the page cache."""


class UsageAggregates(StatusModel):
    """The distribution of usage over a window."""

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
    """The distribution of usage over the window."""


Windows = Annotated[tuple[AggregatedUsage, ...], Field(max_length=8), UniqueItems(("duration",))]


class NodeUsage(StatusModel):
    """The usage of the node as a whole."""

    node_usage: ResourceUsage | None = None
    """The usage of the whole node."""

    aggregated_node_usages: Windows = ()
    """The usage of the whole node, over each window that has enough samples."""

    system_usage: ResourceUsage | None = None
    """The usage of the system itself: the node without its pods."""

    aggregated_system_usages: Windows = ()
    """The usage of the system itself, over each window that has enough samples."""

    best_effort_usage: ResourceUsage | None = None
    """The usage of best-effort pods."""


class ContainerUsage(StatusModel):
    """The usage of one container."""

    name: Text
    """The name of the container."""

    usage: ResourceUsage
    """The usage of the container."""


class PodUsage(StatusModel):
    """The usage of one pod."""

    namespace: Text
    """The namespace of the pod."""

    name: Text
    """The name of the pod."""

    pod_usage: ResourceUsage
    """The usage of all containers of the pod together."""

    containers: Annotated[
        tuple[ContainerUsage, ...], Field(max_length=MAX_CONTAINERS), UniqueItems(("name",))
    ] = ()
    """The usage of each container; only the first 64 are listed."""


class ReclaimableMetric(StatusModel):
    """The resources that could be reclaimed."""

    resource: ResourceUsage
    """The resources that production pods request but, according to the predicted peaks, do not need."""


class Pressure(StatusModel):
    """The share of the last minute in which tasks waited, from 0 to 1."""

    cpu: Number | None = None
    """The share of time in which some task waited for CPU."""

    memory: Number | None = None
    """The share of time in which some task waited for memory."""

    io: Number | None = None
    """The share of time in which some task waited for I/O."""


class KnobStatus(StatusModel):
    """A kernel setting that the agent manages."""

    where: Text
    """The path of the cgroup, or machine."""

    knob: Text
    """The name of the setting."""

    value: Text
    """The value of the setting."""

    strategy: Text
    """The strategy of the policy that requested the value."""

    why: Text
    """The measurements that led to the value."""


class NodeMetricStatus(StatusModel):
    """The observed state."""

    update_time: Time | None = None
    """The time of the agent's last report."""

    node_metric: NodeUsage | None = None
    """The usage of the node as a whole."""

    pods_metric: Annotated[
        tuple[PodUsage, ...], Field(max_length=MAX_PODS), UniqueItems(("namespace", "name"))
    ] = ()
    """The usage of each pod."""

    prod_reclaimable_metric: ReclaimableMetric | None = None
    """The resources of production pods that could be reclaimed."""

    pressure: Pressure | None = None
    """The share of time in which tasks waited; missing if the kernel does not report it."""

    knobs: Annotated[tuple[KnobStatus, ...], Field(max_length=MAX_KNOBS), UniqueItems(("where", "knob"))] = ()
    """The kernel settings that the agent has made, with their reasons: the 32 with the widest scope."""

    qos_policy: Text | None = None
    """The name of the NodeQoSPolicy that the agent applies; missing if none applies, or the agent only observes."""


class NodeMetric(Kind):
    """The resource usage of a node and its pods, as its agent reports it; named like the node."""

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
