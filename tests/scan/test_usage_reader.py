"""Test how step and parts of a read depend on the size of the cluster."""

import itertools
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.plugins import Settings
from trimtab.scan.usage_reader import (
    MAX_PART_SAMPLES,
    MAX_SAMPLES,
    PART_SAMPLES,
    PART_STEPS,
    STEPS,
    ReadPlan,
    plan_read,
    read_usage,
)
from trimtab.usage.source import Capabilities, Cost, Progress, Source, SourceHealth, UsageQuery
from trimtab.usage.usage import Usage

NOW = 1_790_000_000.0
DAY = 86400.0


class CountingSource(Source[Settings]):
    """A source with a given number of series that records its queries."""

    name = "counted"
    settings_type: ClassVar[type[Any]] = Settings
    capabilities = Capabilities(history=True)

    def __init__(self, series: int) -> None:
        super().__init__(Settings())
        self.series = series
        self.queries: list[UsageQuery] = []

    async def check(self) -> SourceHealth:
        return SourceHealth(ok=True, detail="counts")

    async def estimate_cost(self, query: UsageQuery) -> Cost:
        return Cost(queries=1, series=self.series, samples=self.series * query.steps, bytes=0)

    async def read(self, query: UsageQuery, *, progress: Progress | None = None) -> Usage:
        self.queries.append(query)
        if progress:
            progress(1.0)
        nothing = np.empty((query.steps, 0))
        return Usage((), query.start, query.step, nothing, nothing)


async def test_plan_read_uses_finest_step_for_small_cluster() -> None:
    plan = await plan_read(CountingSource(100), window=14 * DAY, step=None, now=NOW, namespaces=["shop"])
    assert plan.query.step == STEPS[0]
    assert plan.split() == [plan.query]
    assert not plan.is_large


async def test_plan_read_uses_coarse_step_and_parts_for_large_cluster() -> None:
    source = CountingSource(20_000)
    plan = await plan_read(source, window=14 * DAY, step=None, now=NOW, namespaces=["shop"])
    assert plan.query.step == 900.0
    assert plan.is_large
    assert plan.cost.samples <= MAX_SAMPLES
    shares: list[float] = []
    parts: list[Usage] = []
    await read_usage(source, plan, parts.append, progress=lambda _, share: shares.append(share))
    assert len(parts) == len(source.queries) > 1
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize(
    ("series", "interval", "step", "rate_window"),
    [(100, 30.0, 75.0, 75.0), (1500, 30.0, 300.0, 75.0), (100, 75.0, STEPS[0], 0.0)],
)
async def test_plan_read_follows_the_step_of_the_strategy_if_samples_are_close_enough(
    series: int, interval: float, step: float, rate_window: float
) -> None:
    source = CountingSource(3 * series)
    source.capabilities = Capabilities(history=True, interval=interval)
    plan = await plan_read(
        source, window=14 * DAY, step=None, now=NOW, namespaces=["shop"], sample_seconds=75.0
    )
    assert (plan.query.step, plan.query.rate_window) == (step, rate_window)


async def test_plan_read_keeps_given_step() -> None:
    plan = await plan_read(CountingSource(10**6), window=DAY, step=60.0, now=NOW, namespaces=[])
    assert plan.query.step == 60.0


@given(
    steps=st.integers(1, 5000),
    series=st.integers(0, 200_000),
    step=st.sampled_from([60.0, 300.0, 900.0]),
)
def test_read_plan_split_covers_window_within_limit(steps: int, series: int, step: float) -> None:
    ask = UsageQuery.last(steps * step, now=NOW, step=step, namespaces=["shop"])
    parts = ReadPlan(ask, Cost(queries=1, series=series, samples=series * steps, bytes=0)).split()
    assert parts[0].start == ask.start
    assert parts[-1].end == ask.end
    assert all(one.end == following.start for one, following in itertools.pairwise(parts))
    assert sum(part.steps for part in parts) == ask.steps
    assert all(part.steps * series <= MAX_PART_SAMPLES or part.steps == 1 for part in parts)
    # Short parts cost servers more, and long ones take memory.
    assert all(part.steps <= PART_STEPS or part.steps * series <= PART_SAMPLES for part in parts)
