"""Build the status of a NodeMetric from the view and the series. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from trimtab.api import Quantity
from trimtab.api.duration import Duration
from trimtab.api.fields import MAX_CONTAINERS, MAX_TEXT_LENGTH
from trimtab.api.nodemetric import (
    MAX_KNOBS,
    MAX_PODS,
    AggregatedUsage,
    ContainerUsage,
    KnobStatus,
    MetricCollectPolicy,
    NodeMetricStatus,
    NodeUsage,
    PodUsage,
    Pressure,
    ReclaimableMetric,
    ResourceUsage,
    UsageAggregates,
)
from trimtab.node.arbiter import KnobRequest
from trimtab.node.arbiter.value_order import format_value
from trimtab.node.model import (
    BEST_EFFORT,
    NODE,
    SYSTEM,
    Metric,
    MetricWindows,
    NodeView,
    PodView,
    container_subject,
    pod_subject,
)
from trimtab.node.prediction import ResourceAmounts

PRESSURE_SECONDS = 60.0
"""The seconds over which pressure is averaged, because a momentary value is of little use once a minute."""


def build_status(
    view: NodeView,
    windows: MetricWindows,
    policy: MetricCollectPolicy,
    reclaimable: ResourceAmounts | None,
    *,
    now: float,
    policy_name: str | None = None,
    requests: Iterable[KnobRequest] = (),
) -> NodeMetricStatus:
    """Build the current report; values without samples for half a window are omitted."""
    seconds = float(policy.aggregate_duration_seconds)
    durations = policy.node_aggregate_policy.durations
    # After a forced deletion the cgroup of a former pod of the same name may still exist: the newer wins.
    named = {
        (pod.namespace, pod.name): pod for pod in sorted(view.pods, key=lambda pod: pod.started) if pod.name
    }
    pods = (_build_pod_usage(pod, windows, seconds) for pod in named.values())
    return NodeMetricStatus(
        update_time=datetime.fromtimestamp(now, UTC),
        node_metric=NodeUsage(
            node_usage=_average_usage(NODE, windows, seconds),
            aggregated_node_usages=_aggregate_usage(NODE, windows, durations),
            system_usage=_average_usage(SYSTEM, windows, seconds),
            aggregated_system_usages=_aggregate_usage(SYSTEM, windows, durations),
            best_effort_usage=_average_usage(BEST_EFFORT, windows, seconds),
        ),
        pods_metric=tuple(pod for pod in pods if pod is not None)[:MAX_PODS],
        prod_reclaimable_metric=None
        if reclaimable is None
        else ReclaimableMetric(resource=_build_usage(reclaimable.cpu / 1000, reclaimable.memory)),
        pressure=_build_pressure(windows),
        knobs=_build_knobs(requests),
        qos_policy=policy_name,
    )


def _build_pressure(windows: MetricWindows) -> Pressure | None:
    cpu, memory, io = (
        windows.average(NODE, metric, PRESSURE_SECONDS)
        for metric in (Metric.CPU_PRESSURE, Metric.MEMORY_PRESSURE, Metric.IO_PRESSURE)
    )
    return None if cpu is memory is io is None else Pressure(cpu=cpu, memory=memory, io=io)


def _build_knobs(requests: Iterable[KnobRequest]) -> tuple[KnobStatus, ...]:
    """Return the knobs of the host first, then of the outermost cgroups."""
    ordered = sorted(requests, key=lambda request: (request.ref.depth, request.ref.key))
    return tuple(
        KnobStatus(
            where=request.ref.path or "machine",
            knob=request.ref.knob.name,
            value=format_value(request.value)[:MAX_TEXT_LENGTH],
            strategy=request.strategy,
            why=request.reason[:MAX_TEXT_LENGTH],
        )
        for request in ordered[:MAX_KNOBS]
    )


def _build_pod_usage(pod: PodView, windows: MetricWindows, seconds: float) -> PodUsage | None:
    usage = _average_usage(pod_subject(pod.uid), windows, seconds)
    if usage is None:
        return None
    each = {
        one.name: _average_usage(container_subject(pod.uid, one.name), windows, seconds)
        for one in pod.containers
    }
    known = [ContainerUsage(name=name, usage=usage) for name, usage in each.items() if usage is not None]
    return PodUsage(
        namespace=pod.namespace,
        name=pod.name,
        pod_usage=usage,
        containers=tuple(known[:MAX_CONTAINERS]),
    )


def _average_usage(subject: str, windows: MetricWindows, seconds: float) -> ResourceUsage | None:
    cpu = windows.average(subject, Metric.CPU, seconds)
    memory = windows.average(subject, Metric.MEMORY, seconds)
    return None if cpu is None or memory is None else _build_usage(cpu, memory)


def _aggregate_usage(
    subject: str, windows: MetricWindows, durations: tuple[Duration, ...]
) -> tuple[AggregatedUsage, ...]:
    found = []
    for duration in durations:
        cpu = windows.spread(subject, Metric.CPU, duration.seconds)
        memory = windows.spread(subject, Metric.MEMORY, duration.seconds)
        if cpu is not None and memory is not None:
            usage = UsageAggregates(
                avg=_build_usage(cpu.avg, memory.avg),
                p50=_build_usage(cpu.p50, memory.p50),
                p90=_build_usage(cpu.p90, memory.p90),
                p95=_build_usage(cpu.p95, memory.p95),
                p99=_build_usage(cpu.p99, memory.p99),
            )
            found.append(AggregatedUsage(duration=duration, usage=usage))
    return tuple(found)


def _build_usage(cores: float, memory: float) -> ResourceUsage:
    return ResourceUsage(
        cpu=Quantity.from_millicores(round(cores * 1000)), memory=Quantity.from_bytes(round(memory))
    )
