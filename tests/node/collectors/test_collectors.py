"""Collectors against the kernel of this machine, and the advisor that runs them."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from trimtab.node.collectors import CollectorManager, CollectorUnsupported
from trimtab.node.collectors.node import NodeCollector
from trimtab.node.model import NODE, Metric, NodeView
from trimtab.node.series import SeriesStore

VIEW = NodeView(name="node", cpus=(), memory=0)


class Scripted:
    """A collector with scripted results."""

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


def collector_metric(registry: CollectorRegistry, name: str, collector: str) -> float | None:
    return registry.get_sample_value(f"trimtab_agent_collector_{name}", {"collector": collector})


def test_memory_collector_excludes_huge_pages(tmp_path: Path) -> None:
    """Otherwise a node with most of its memory in huge pages would seem full and evict pods needlessly."""
    (tmp_path / "stat").write_text("cpu  1 2 3 4 5 6 7 0 0 0\n")
    (tmp_path / "meminfo").write_text(
        "MemTotal: 1000 kB\nMemAvailable: 150 kB\nCached: 30 kB\nShmem: 10 kB\nHugetlb: 800 kB\n"
    )
    collector, series = NodeCollector(tmp_path), SeriesStore(now=1e9)
    collector.collect(VIEW, series)
    collector.close()
    assert series.latest(NODE, Metric.MEMORY) == 50 << 10
    assert series.latest(NODE, Metric.PAGE_CACHE) == 20 << 10


def test_failing_collector_does_not_affect_others() -> None:
    registry, series = CollectorRegistry(), SeriesStore()
    bad, good = Scripted("bad", error=ValueError("no such line")), Scripted("good")
    advisor = CollectorManager([bad, good], series, registry=registry)
    for second in range(3):
        advisor.collect(VIEW, 100.0 + second)
    assert series.latest(NODE, Metric.CPU) == 1.0
    assert advisor.failing == {"bad": "ValueError: no such line"}
    assert collector_metric(registry, "failures_total", "bad") == 3
    assert (collector_metric(registry, "up", "bad"), collector_metric(registry, "up", "good")) == (0, 1)
    bad.error = None
    advisor.collect(VIEW, 103.0)
    assert advisor.failing == {}
    assert collector_metric(registry, "up", "bad") == 1


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
