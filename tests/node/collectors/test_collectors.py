"""Collectors against the kernel of this machine, and the advisor that runs them."""

import dataclasses
import os
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from harness import collector_checks as measured
from harness.kubepods import Kubepods
from harness.node_views import node_view, pod_view
from trimtab.node.collectors import CollectorManager, CollectorUnsupported
from trimtab.node.collectors.node import NodeCollector
from trimtab.node.model import NODE, Metric, NodeView, container_subject
from trimtab.node.series import SeriesStore

VIEW = NodeView(name="node", cpus=(), memory=0)


class Scripted:
    """A collector that does as it is told."""

    def __init__(self, name: str, period: float = 1.0, error: Exception | None = None) -> None:
        self.name = name
        self.period = period
        self.error = error
        self.rounds: list[float] = []
        self.closed = False

    def collect(self, view: NodeView, series: SeriesStore) -> None:
        self.rounds.append(series.now)
        if self.error:
            raise self.error
        series.add(NODE, Metric.CPU, 1.0, period=self.period)

    def close(self) -> None:
        self.closed = True


def counted(registry: CollectorRegistry, name: str, collector: str) -> float | None:
    return registry.get_sample_value(f"trimtab_agent_collector_{name}", {"collector": collector})


def test_cpu_collector_reports_kernel_counters(kubepods: Kubepods) -> None:
    measured.cpu_is_what_the_kernel_counted(kubepods)


def test_memory_collector_reports_kernel_counters(kubepods: Kubepods) -> None:
    measured.memory_is_what_the_kernel_counted(kubepods, Path(f"/dev/shm/trimtab-{os.getpid()}"))


def test_memory_collector_excludes_huge_pages(tmp_path: Path) -> None:
    """Or a node that has set most of its memory aside for them would seem to be full, and send pods away in vain."""
    (tmp_path / "stat").write_text("cpu  1 2 3 4 5 6 7 0 0 0\n")
    (tmp_path / "meminfo").write_text(
        "MemTotal: 1000 kB\nMemAvailable: 150 kB\nCached: 30 kB\nShmem: 10 kB\nHugetlb: 800 kB\n"
    )
    collector, series = NodeCollector(tmp_path), SeriesStore(now=1e9)
    collector.collect(VIEW, series)
    collector.close()
    assert series.latest(NODE, Metric.MEMORY) == 50 << 10
    assert series.latest(NODE, Metric.PAGE_CACHE) == 20 << 10


def test_collectors_tolerate_a_pod_removed_while_reading(kubepods: Kubepods) -> None:
    measured.a_pod_may_vanish_under_the_reader(kubepods)


def test_collectors_use_a_pods_name_as_soon_as_it_is_known(kubepods: Kubepods) -> None:
    cgroup, containers = kubepods.pod()
    nameless = pod_view(cgroup, containers)
    named = pod_view(cgroup, containers, uid=nameless.uid)
    named = dataclasses.replace(named, containers=(dataclasses.replace(named.containers[0], name="main"),))
    series = SeriesStore()
    advisor = measured.advisor_of(kubepods, series)
    for second, pod in enumerate([nameless, named, named, named]):
        advisor.collect(node_view(kubepods, pod), 100.0 + second)
    assert series.latest(container_subject(named.uid, "main"), Metric.CPU) is not None
    advisor.close()


def test_rundelay_collector_includes_nested_cgroups(kubepods: Kubepods) -> None:
    measured.threads_below_a_container_are_seen(kubepods)


def test_missing_perf_counters_disable_only_their_collector(kubepods: Kubepods) -> None:
    series = SeriesStore()
    advisor = measured.advisor_of(kubepods, series)
    for second in range(3):
        advisor.collect(node_view(kubepods), 100.0 + second)
    assert not advisor.failing
    assert series.latest(NODE, Metric.CPU) is not None
    advisor.close()


def test_failing_collector_does_not_affect_others() -> None:
    registry, series = CollectorRegistry(), SeriesStore()
    bad, good = Scripted("bad", error=ValueError("no such line")), Scripted("good")
    advisor = CollectorManager([bad, good], series, registry=registry)
    for second in range(3):
        advisor.collect(VIEW, 100.0 + second)
    assert series.latest(NODE, Metric.CPU) == 1.0
    assert advisor.failing == {"bad": "ValueError: no such line"}
    assert counted(registry, "failures_total", "bad") == 3
    assert (counted(registry, "up", "bad"), counted(registry, "up", "good")) == (0, 1)
    bad.error = None
    advisor.collect(VIEW, 103.0)
    assert advisor.failing == {}
    assert counted(registry, "up", "bad") == 1


def test_unsupported_collector_is_tried_once() -> None:
    never = Scripted("cpi", error=CollectorUnsupported("no counters"))
    advisor = CollectorManager([never], SeriesStore(), registry=CollectorRegistry())
    for second in range(3):
        advisor.collect(VIEW, 100.0 + second)
    assert len(never.rounds) == 1
    assert never.closed
    assert advisor.failing == {}


@pytest.mark.parametrize("jitter", [-0.05, 0.0, 0.05])
def test_collectors_keep_their_periods_with_jittered_rounds(jitter: float) -> None:
    fast, slow = Scripted("fast"), Scripted("slow", period=10.0)
    advisor = CollectorManager([fast, slow], SeriesStore(), registry=CollectorRegistry())
    for second in range(60):
        advisor.collect(VIEW, 100.0 + second + jitter * (second % 2))
    assert len(fast.rounds) == 60
    assert len(slow.rounds) == 6


def test_collectors_continue_after_the_clock_goes_back() -> None:
    slow = Scripted("slow", period=10.0)
    advisor = CollectorManager([slow], SeriesStore(), registry=CollectorRegistry())
    advisor.collect(VIEW, 10_000.0)
    advisor.collect(VIEW, 100.0)
    advisor.collect(VIEW, 110.0)
    assert slow.rounds == [10_000.0, 100.0, 110.0]
