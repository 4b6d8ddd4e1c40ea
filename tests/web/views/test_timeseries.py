"""One workload over time: its sizes by the history of its changes, and its back-test."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from harness.builders.records import workload
from trimtab.kube.kinds.pods import Resources
from trimtab.operator.views import WorkloadView
from trimtab.scan.pricing import ResourcePrices
from trimtab.store import HistoryRecord
from trimtab.usage.errors import SourceUnavailable
from trimtab.usage.pod_ownership import PodOwnerIndex
from trimtab.usage.source import Capabilities, UsageQuery
from trimtab.usage.trace import Trace
from trimtab.usage.usage import PodContainer, Usage
from trimtab.web.model import BacktestResult, CurveRole
from trimtab.web.views import detail
from trimtab.web.views.detail import DetailCache
from trimtab.web.views.timeseries import SizeHistory, build_plots, read_usage_history
from web.entries import entry

SMALL, MIDDLE, LARGE = (Resources(cpu_request=amount) for amount in (100, 200, 300))


def had(*records: HistoryRecord, now: Resources) -> list[float | None]:
    """At 0, 10, 20 and so on up to 60."""
    sizes = SizeHistory("app", records[::-1], has=now, should=None)
    return list(sizes.current_values([float(at) for at in range(0, 61, 10)], lambda size: size.cpu_request))


BEFORE = (entry(5.0, "applying", SMALL, MIDDLE), entry(15.0, "applied", SMALL, MIDDLE))


def test_sizes_curve_of_a_running_change_starts_at_that_change() -> None:
    found = had(*BEFORE, entry(35.0, "applying", MIDDLE, LARGE), now=LARGE)
    assert found == [100, 200, 200, 200, 300, 300, 300]


def test_sizes_curve_shows_a_reverted_change_while_it_lasted() -> None:
    tried = entry(25.0, "applying", MIDDLE, LARGE), entry(45.0, "reverted", LARGE, MIDDLE)
    assert had(*BEFORE, *tried, now=MIDDLE) == [100, 200, 200, 300, 300, 200, 200]


class Returning:
    """A source that is away at first, and has nothing of anybody."""

    capabilities = Capabilities(history=True)
    away = True

    async def read(self, ask: UsageQuery) -> Usage:
        if self.away:
            raise SourceUnavailable("later")
        nothing = np.empty((ask.steps, 0))
        return Usage((), ask.start, ask.step, nothing, nothing)


async def test_backtest_is_retried_soon_after_a_source_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fared = (BacktestResult(strategy="trimtab"),)

    async def backtests(*_: Any, **__: Any) -> tuple[BacktestResult, ...]:
        return fared

    async def no_history(**_: Any) -> list[HistoryRecord]:
        return []

    monkeypatch.setattr(detail, "run_backtests", backtests)
    web, source = workload("web", containers=({"name": "app"},)), Returning()
    view = WorkloadView(workload=web, containers=web.containers)
    views: Any = SimpleNamespace(
        cluster_name="test",
        step=60.0,
        store=SimpleNamespace(history=SimpleNamespace(find=no_history)),
        source_for=lambda _: source,
        build_owner_index=lambda: PodOwnerIndex([web]),
    )
    details = DetailCache(prices=ResourcePrices, fresh=60.0)

    async def records(now: float) -> tuple[BacktestResult, ...]:
        (found,) = await details.get(views, view, now=now)
        return found.backtest

    assert details.get_known(view, now=1e9) is None
    assert await records(1e9) == ()
    assert details.get_known(view, now=1e9) is not None
    source.away = False
    assert await records(1e9 + 61) == fared
    source.away = True
    assert await records(1e9 + 7 * 3600) == fared


class Sampling:
    """A source with a sample of container `app` at every step, of whatever runs under the name."""

    capabilities = Capabilities(history=True)

    def __init__(self) -> None:
        self.asked: list[UsageQuery] = []

    async def read(self, query: UsageQuery) -> Usage:
        self.asked.append(query)
        ones = np.ones((query.steps, 1))
        return Usage((POD,), query.start, query.step, ones, ones)


POD = PodContainer("default", "web-5d89f7c6b4-x7k2p", "app")
CREATED, NOW = 100_050.0, 100_050.0 + 28 * 60


async def read_young(*, finest: float = 60.0) -> tuple[Trace, Sampling]:
    web, source = workload("web", containers=({"name": "app"},)), Sampling()
    trace = await read_usage_history(
        cast("Any", source), PodOwnerIndex([web]), web.key, ["app"], created=CREATED, finest=finest, now=NOW
    )
    return trace, source


async def test_usage_of_a_young_workload_starts_at_its_creation_in_fine_steps() -> None:
    trace, source = await read_young()
    assert (trace.step, trace.steps) == (60.0, 28)
    assert min(query.start for query in source.asked) > CREATED - 60
    coarse, _ = await read_young(finest=300.0)
    assert coarse.step == 300.0


async def test_size_curves_step_at_their_changes_and_reach_the_present() -> None:
    trace, _ = await read_young()
    changed = NOW - 333.3
    sizes = SizeHistory(
        "app", [entry(changed, "applying", MIDDLE, SMALL)], has=SMALL, should=Resources(cpu_request=100)
    )
    cpu, _ = build_plots(trace, 0, sizes, now=NOW)
    requested = next(curve.values for curve in cpu.curves if curve.role is CurveRole.REQUESTED)
    assert requested[cpu.times.index(changed)] == 0.1
    assert requested[cpu.times.index(changed) - 1] == 0.2
    assert cpu.times[-1] == NOW
    assert all(len(curve.values) == len(cpu.times) for curve in cpu.curves)
