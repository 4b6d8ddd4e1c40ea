"""The contract of every usage source: the test of a source calls `conforms`."""

from dataclasses import replace
from typing import Any

import numpy as np

from trimtab.usage.source import Source, UsageQuery
from trimtab.usage.usage import MAX_BYTES, MAX_CORES, Usage


async def conforms(source: Source[Any], ask: UsageQuery) -> None:
    """Check a source; `ask` must cover a time with samples."""
    await _reports_health(source)
    usage = await _reads_the_same_twice(source, ask)
    _is_on_the_grid(usage, ask)
    _has_only_plausible_values(usage)
    _matches_capabilities(source, usage)
    await _reads_only_selected_namespaces(source, ask, usage)
    await _estimates_cost(source, ask)


async def _reports_health(source: Source[Any]) -> None:
    health = await source.check()
    assert health.detail
    assert "\n" not in health.detail + health.advice
    assert health.ok or health.advice


async def _reads_the_same_twice(source: Source[Any], ask: UsageQuery) -> Usage:
    shares: list[float] = []
    usage, again = await source.read(ask, progress=shares.append), await source.read(ask)
    assert usage.sample_count > 0
    assert usage.containers == again.containers
    np.testing.assert_array_equal(usage.cpu, again.cpu)
    np.testing.assert_array_equal(usage.memory, again.memory)
    assert all(0 <= share <= 1 + 1e-9 for share in shares)
    assert shares == sorted(shares)
    return usage


def _is_on_the_grid(usage: Usage, ask: UsageQuery) -> None:
    assert (usage.start, usage.step) == (ask.start, ask.step)
    assert usage.cpu.shape == usage.memory.shape == (ask.steps, len(usage.containers))
    assert len(set(usage.containers)) == len(usage.containers)


def _has_only_plausible_values(usage: Usage) -> None:
    for grid, most in ((usage.cpu, MAX_CORES), (usage.memory, MAX_BYTES)):
        known = grid[~np.isnan(grid)]
        assert ((known >= 0) & (known <= most)).all()
    if usage.throttled is not None:
        shares = usage.throttled[~np.isnan(usage.throttled)]
        assert ((shares >= 0) & (shares <= 1)).all()
    if usage.ooms is not None:
        assert usage.ooms == tuple(sorted(usage.ooms))


def _matches_capabilities(source: Source[Any], usage: Usage) -> None:
    assert (usage.throttled is not None) == source.capabilities.throttling
    assert (usage.ooms is not None) == source.capabilities.ooms


async def _reads_only_selected_namespaces(source: Source[Any], ask: UsageQuery, usage: Usage) -> None:
    namespace = usage.containers[0].namespace
    some = await source.read(replace(ask, namespaces=(namespace,)))
    assert some.containers == tuple(one for one in usage.containers if one.namespace == namespace)
    none = await source.read(replace(ask, namespaces=("no-such-namespace",)))
    assert none.containers == ()
    assert none.cpu.shape == (ask.steps, 0)


async def _estimates_cost(source: Source[Any], ask: UsageQuery) -> None:
    cost = await source.estimate_cost(ask)
    assert min(cost.queries, cost.series, cost.samples, cost.bytes) >= 0
