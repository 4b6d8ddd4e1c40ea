"""One workload over time: its sizes by the history of its changes, and its back-test."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

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
from trimtab.usage.usage import Usage
from trimtab.web.model import BacktestResult
from trimtab.web.views import detail
from trimtab.web.views.detail import DetailCache
from trimtab.web.views.timeseries import SizeHistory
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
        store=SimpleNamespace(history=SimpleNamespace(find=no_history)),
        source_for=lambda _: source,
        build_owner_index=lambda: PodOwnerIndex([web]),
    )
    details = DetailCache(prices=ResourcePrices(), fresh=60.0)

    async def records(now: float) -> tuple[BacktestResult, ...]:
        (found,) = await details.get(views, view, now=now)
        return found.backtest

    assert await records(1e9) == ()
    source.away = False
    assert await records(1e9 + 61) == fared
    source.away = True
    assert await records(1e9 + 7 * 3600) == fared
