"""What a NodeMetric's status says, from the picture and the series: pure, so that every number can be checked."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from trimtab.api import Quantity
from trimtab.api.duration import Duration
from trimtab.api.fields import MOST_CHARACTERS, MOST_CONTAINERS
from trimtab.api.nodemetric import (
    MOST_KNOBS,
    MOST_PODS,
    AggregatedUsage,
    Aggregates,
    ContainerUsage,
    MetricCollectPolicy,
    NodeMetricStatus,
    NodeUsage,
    PodUsage,
    Pressure,
    Reclaimable,
    TurnedKnob,
    Usage,
)
from trimtab.node.arbiter import Wish
from trimtab.node.arbiter.value_order import shown
from trimtab.node.model import (
    BEST_EFFORT,
    NODE,
    SYSTEM,
    Metric,
    NodeView,
    PodView,
    Windows,
    container_subject,
    pod_subject,
)
from trimtab.node.prediction import Spare

LATELY = 60.0
"""Seconds over which pressure is averaged: that of one moment would tell little once a minute."""


def status_of(
    view: NodeView,
    windows: Windows,
    policy: MetricCollectPolicy,
    spare: Spare | None,
    *,
    now: float,
    followed: str | None = None,
    held: Iterable[Wish] = (),
) -> NodeMetricStatus:
    """The report of this moment. What samples do not span half a window of is left out."""
    seconds = float(policy.aggregate_duration_seconds)
    durations = policy.node_aggregate_policy.durations
    # Of two of one name the cgroup of the former, which was deleted by force, is there still.
    named = {
        (pod.namespace, pod.name): pod for pod in sorted(view.pods, key=lambda pod: pod.started) if pod.name
    }
    pods = (_pod(pod, windows, seconds) for pod in named.values())
    return NodeMetricStatus(
        update_time=datetime.fromtimestamp(now, UTC),
        node_metric=NodeUsage(
            node_usage=_average(NODE, windows, seconds),
            aggregated_node_usages=_aggregated(NODE, windows, durations),
            system_usage=_average(SYSTEM, windows, seconds),
            aggregated_system_usages=_aggregated(SYSTEM, windows, durations),
            best_effort_usage=_average(BEST_EFFORT, windows, seconds),
        ),
        pods_metric=tuple(pod for pod in pods if pod is not None)[:MOST_PODS],
        prod_reclaimable_metric=None
        if spare is None
        else Reclaimable(resource=_usage(spare.cpu / 1000, spare.memory)),
        pressure=_pressure(windows),
        knobs=_knobs(held),
        qos_policy=followed,
    )


def _pressure(windows: Windows) -> Pressure | None:
    cpu, memory, io = (
        windows.average(NODE, metric, LATELY)
        for metric in (Metric.CPU_PRESSURE, Metric.MEMORY_PRESSURE, Metric.IO_PRESSURE)
    )
    return None if cpu is memory is io is None else Pressure(cpu=cpu, memory=memory, io=io)


def _knobs(held: Iterable[Wish]) -> tuple[TurnedKnob, ...]:
    """Those of the machine first, then of the outermost cgroups."""
    ordered = sorted(held, key=lambda wish: (wish.spot.depth, wish.spot.key))
    return tuple(
        TurnedKnob(
            where=wish.spot.path or "machine",
            knob=wish.spot.knob.name,
            value=shown(wish.value)[:MOST_CHARACTERS],
            strategy=wish.strategy,
            why=wish.why[:MOST_CHARACTERS],
        )
        for wish in ordered[:MOST_KNOBS]
    )


def _pod(pod: PodView, windows: Windows, seconds: float) -> PodUsage | None:
    usage = _average(pod_subject(pod.uid), windows, seconds)
    if usage is None:
        return None
    each = {
        one.name: _average(container_subject(pod.uid, one.name), windows, seconds) for one in pod.containers
    }
    known = [ContainerUsage(name=name, usage=usage) for name, usage in each.items() if usage is not None]
    return PodUsage(
        namespace=pod.namespace,
        name=pod.name,
        pod_usage=usage,
        containers=tuple(known[:MOST_CONTAINERS]),
    )


def _average(subject: str, windows: Windows, seconds: float) -> Usage | None:
    cpu = windows.average(subject, Metric.CPU, seconds)
    memory = windows.average(subject, Metric.MEMORY, seconds)
    return None if cpu is None or memory is None else _usage(cpu, memory)


def _aggregated(
    subject: str, windows: Windows, durations: tuple[Duration, ...]
) -> tuple[AggregatedUsage, ...]:
    found = []
    for duration in durations:
        cpu = windows.spread(subject, Metric.CPU, duration.seconds)
        memory = windows.spread(subject, Metric.MEMORY, duration.seconds)
        if cpu is not None and memory is not None:
            usage = Aggregates(
                avg=_usage(cpu.avg, memory.avg),
                p50=_usage(cpu.p50, memory.p50),
                p90=_usage(cpu.p90, memory.p90),
                p95=_usage(cpu.p95, memory.p95),
                p99=_usage(cpu.p99, memory.p99),
            )
            found.append(AggregatedUsage(duration=duration, usage=usage))
    return tuple(found)


def _usage(cores: float, memory: float) -> Usage:
    return Usage(cpu=Quantity.of_millicores(round(cores * 1000)), memory=Quantity.of_bytes(round(memory)))
