"""The reported NodeMetric: its content, and that the API server accepts it."""

import asyncio
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from harness.builders.node_views import pod_view
from trimtab.api.nodemetric import MetricCollectPolicy
from trimtab.kube.rest.client import Client
from trimtab.node.arbiter import KnobRef, KnobRequest, Value
from trimtab.node.cgroups.knobs import CPU_SHARES, CPUSET_CPUS
from trimtab.node.model import (
    BEST_EFFORT,
    NODE,
    SYSTEM,
    Metric,
    NodeView,
    container_subject,
    pod_subject,
)
from trimtab.node.prediction import ResourceAmounts
from trimtab.node.reporter import build_status
from trimtab.node.reporter.reporter import Reporter
from trimtab.node.series import SeriesStore

MIB = 1 << 20
NOW = 1_800_000_000.0
POD = pod_view("kubepods/pod", ["kubepods/pod/a", "kubepods/pod/b"], namespace="shop", name="web")
VIEW = NodeView(name="node-1", cpus=(), memory=1 << 30, pods=(POD, pod_view("kubepods/pod2", name="")))


def observed_node(seconds: int) -> SeriesStore:
    """Return a node observed for so long, its CPU rising from 0 by a hundredth of a core a second."""
    series = SeriesStore()
    each = [NODE, SYSTEM, BEST_EFFORT, *(pod_subject(pod.uid) for pod in VIEW.pods)]
    each += [container_subject(POD.uid, name) for name in ("c0", "c1")]
    for second in range(seconds):
        series.now = NOW - seconds + 1 + second
        for subject in each:
            series.add(subject, Metric.CPU, second / 100, period=1.0)
            series.add(subject, Metric.MEMORY, 64.0 * MIB, period=1.0)
    return series


def test_report_omits_windows_that_are_less_than_half_full() -> None:
    status = build_status(VIEW, observed_node(149), MetricCollectPolicy(), None, now=NOW)
    assert status.node_metric is not None
    assert status.node_metric.node_usage is None
    assert status.node_metric.aggregated_node_usages == ()
    assert status.pods_metric == ()
    assert status.prod_reclaimable_metric is None


def test_report_has_pressure_and_the_widest_knobs_with_reasons() -> None:
    series = observed_node(60)
    for _ in range(6):
        series.add(NODE, Metric.CPU_PRESSURE, 0.25, period=10.0)
        series.now += 10
    held = [
        KnobRequest(ref=KnobRef(path, CPU_SHARES), value=2, strategy="cpusuppress", reason="a test")
        for path in (*(f"kubepods/pod{number}" for number in range(40)), "kubepods")
    ]
    status = build_status(VIEW, series, MetricCollectPolicy(), None, requests=held, now=NOW)
    assert status.pressure is not None
    assert (status.pressure.cpu, status.pressure.io) == (0.25, None)
    assert (len(status.knobs), status.knobs[0].where, status.knobs[0].why) == (32, "kubepods", "a test")


def test_report_has_averages_percentiles_pods_containers_and_reclaimable() -> None:
    status = build_status(
        VIEW, observed_node(300), MetricCollectPolicy(), ResourceAmounts(1500, 64 * MIB), now=NOW
    )
    metric = status.node_metric
    assert metric is not None
    assert metric.node_usage is not None
    assert str(metric.node_usage.cpu) == "1495m"
    assert str(metric.node_usage.memory) == "64Mi"
    assert metric.system_usage is not None
    assert metric.best_effort_usage is not None
    [five, ten] = metric.aggregated_node_usages  # half of thirty minutes has not gone by
    assert (five.duration.seconds, ten.duration.seconds) == (300, 600)
    assert [str(usage and usage.cpu) for usage in (five.usage.p50, five.usage.p90, five.usage.p99)] == [
        "1490m",
        "2690m",
        "2960m",
    ]
    [pod] = status.pods_metric  # one without a name belongs to no pod
    assert (pod.namespace, pod.name) == ("shop", "web")
    assert [container.name for container in pod.containers] == ["c0", "c1"]
    assert status.prod_reclaimable_metric is not None
    assert str(status.prod_reclaimable_metric.resource.cpu) == "1500m"


def test_report_truncates_containers_to_the_crd_maximum() -> None:
    series = SeriesStore()
    crowd = pod_view("kubepods/pod", [f"kubepods/pod/{number}" for number in range(100)], name="crowd")
    names = [container_subject(crowd.uid, container.name) for container in crowd.containers]
    for second in range(300):
        series.now = NOW - 299 + second
        for subject in (pod_subject(crowd.uid), *names):
            series.add(subject, Metric.CPU, 0.1, period=1.0)
            series.add(subject, Metric.MEMORY, 1.0 * MIB, period=1.0)
    view = NodeView(name="node-1", cpus=(), memory=1 << 30, pods=(crowd,))
    [pod] = build_status(view, series, MetricCollectPolicy(), None, now=NOW).pods_metric
    assert len(pod.containers) == 64


def test_report_keeps_the_newer_of_two_pods_with_one_name() -> None:
    series = SeriesStore()
    former, latter = (
        pod_view(f"kubepods/{uid}", name="web-0", uid=uid, started=started)
        for uid, started in (("z", 1.0), ("a", 2.0))
    )
    for second in range(300):
        series.now = NOW - 299 + second
        for pod, cores in ((former, 1.0), (latter, 2.0)):
            series.add(pod_subject(pod.uid), Metric.CPU, cores, period=1.0)
            series.add(pod_subject(pod.uid), Metric.MEMORY, 1.0 * MIB, period=1.0)
    for pods in ((former, latter), (latter, former)):
        view = NodeView(name="node-1", cpus=(), memory=1 << 30, pods=pods)
        [pod_metric] = build_status(view, series, MetricCollectPolicy(), None, now=NOW).pods_metric
        assert str(pod_metric.pod_usage.cpu) == "2"


def test_report_truncates_long_knob_values_to_the_crd_maximum() -> None:
    values: list[Value] = [
        frozenset(range(8, 512)),
        frozenset(range(0, 1024, 2)),
        {f"L3:{number}": 0xFFFF for number in range(256)},
    ]
    held = [
        KnobRequest(
            ref=KnobRef(str(place), CPUSET_CPUS),
            value=value,
            strategy="s",
            reason="as another's plugin says " * 99,
        )
        for place, value in enumerate(values)
    ]
    status = build_status(VIEW, SeriesStore(), MetricCollectPolicy(), None, requests=held, now=NOW)
    some, every_other, shares = (knob.value for knob in status.knobs)
    assert some == "8-511"
    assert every_other.startswith("0,2,4,")
    assert shares.startswith("L3:0=65535 L3:1=65535 ")


def test_report_has_the_windows_of_its_policy() -> None:
    policy = MetricCollectPolicy.model_validate(
        {"aggregateDurationSeconds": 60, "nodeAggregatePolicy": {"durations": ["2m"]}}
    )
    metric = build_status(VIEW, observed_node(300), policy, None, now=NOW).node_metric
    assert metric is not None
    assert metric.node_usage is not None
    assert str(metric.node_usage.cpu) == "2695m"
    assert [each.duration.seconds for each in metric.aggregated_node_usages] == [120]


class OneNodeMetric:
    """An API server with one NodeMetric, whose status can be written."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec

    async def get(self, *_: object) -> dict[str, Any]:
        return {"spec": self._spec}

    async def patch(self, *_: object, **__: object) -> None:
        return None


async def test_reporter_waits_for_the_interval_of_its_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise asyncio.CancelledError

    monkeypatch.setattr("trimtab.node.reporter.reporter.asyncio.sleep", sleep)
    spec = {"metricCollectPolicy": {"reportIntervalSeconds": 300}}
    reporter = Reporter(
        cast("Client", OneNodeMetric(spec)),
        "node-1",
        lambda policy: build_status(VIEW, SeriesStore(), policy, None, now=NOW),
        uid=lambda: "uid",
        registry=CollectorRegistry(),
    )
    with pytest.raises(asyncio.CancelledError):
        await reporter.run()
    assert waits[1] == pytest.approx(300, rel=0.2)
