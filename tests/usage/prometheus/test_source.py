"""Test reading usage from a real Prometheus with resets, gaps, duplicates and implausible values."""

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pytest

from harness.peers.recorded_prometheus import RecordedServers
from trimtab.errors import TrimtabError
from trimtab.usage.errors import UsageError
from trimtab.usage.prometheus import Prometheus, PrometheusSettings
from trimtab.usage.source import UsageQuery, query_value, source
from trimtab.usage.usage import PodContainer, Usage
from usage.conformance import conforms
from usage.recording import MEMORY, MIB, SCRAPE, SPECIAL_NAMESPACE, T0, example_recording


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"url": "prometheus:9090"}, "url: must look like http://HOST:PORT"),
        ({"url": "http://me:secret@host"}, "must not contain a password"),
        ({"username": "me"}, "username and password_file belong together"),
        ({"cert_file": "/c"}, "cert_file and key_file belong together"),
        ({"labels": {'a"b': "c"}}, "labels"),
        ({"labels": "cluster=prod"}, "labels: write each entry as labels.NAME=VALUE on the command line"),
        ({"cpu_rule": "sum(x)"}, "cpu_rule"),
        ({"ulr": "http://host"}, "ulr: unknown field"),
    ],
)
def test_settings_reject_invalid_values_in_one_line(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(TrimtabError) as refused:
        source("prometheus", **settings)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


HOUR = 3600.0
QUERY = UsageQuery(start=T0, end=T0 + 2 * HOUR, step=60)


@pytest.fixture(scope="module")
def server(servers: RecordedServers) -> Iterator[str]:
    with servers.serve("examples", example_recording().text) as url:
        yield url


@pytest.fixture(scope="module", params=[True, False], ids=["raw samples", "queries"])
def raw(request: pytest.FixtureRequest) -> bool:
    """Run every test with remote read and with range queries."""
    way: bool = request.param
    return way


@pytest.fixture(scope="module")
def usage(server: str, raw: Literal[True, False]) -> Usage:
    return asyncio.run(read(server, raw_samples=raw))


async def read(server: str, ask: UsageQuery = QUERY, **settings: Any) -> Usage:
    async with Prometheus(PrometheusSettings(url=server, **settings)) as prometheus:
        return await prometheus.read(ask)


def column(usage: Usage, pod: str, resource: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    (place,) = [i for i, container in enumerate(usage.containers) if container.pod == pod]
    found: np.ndarray[Any, np.dtype[np.float64]] = getattr(usage, resource)[:, place]
    return found


def test_prometheus_reads_usage_without_pod_cgroups(usage: Usage) -> None:
    assert usage.steps == QUERY.steps
    assert PodContainer("shop", "steady", "app") in usage.containers
    assert {container.container for container in usage.containers} == {"app"}
    np.testing.assert_allclose(column(usage, "steady", "cpu")[3:], 0.5)
    np.testing.assert_array_equal(column(usage, "steady", "memory"), 100 * MIB)


def test_prometheus_reads_counter_reset_without_peak_or_negative_rate(usage: Usage) -> None:
    cpu = column(usage, "restarted", "cpu")[3:]
    assert not np.isnan(cpu).any()
    assert (cpu >= 0.15).all()
    assert (cpu <= 0.26).all()


def test_prometheus_keeps_gaps_and_drops_low_edges(usage: Usage) -> None:
    cpu, memory = column(usage, "away", "cpu"), column(usage, "away", "memory")
    gap = slice(42, 70)  # 40 to 70 minutes, and the window that looks back
    assert np.isnan(cpu[gap]).all()
    assert np.isnan(memory[gap]).all()
    np.testing.assert_allclose(cpu[~np.isnan(cpu)], 0.5, rtol=1e-3)
    assert np.count_nonzero(~np.isnan(cpu)) > 80


def test_prometheus_drops_rate_of_slightly_decreasing_counter(usage: Usage) -> None:
    cpu = column(usage, "glitch", "cpu")
    assert np.isnan(cpu[50:53]).any()
    np.testing.assert_allclose(cpu[~np.isnan(cpu)], 0.5, rtol=1e-3)


def test_prometheus_sums_cpu_of_kubelet_with_per_processor_series(usage: Usage) -> None:
    np.testing.assert_allclose(column(usage, "by-processor", "cpu")[3:], 0.5)


def test_prometheus_drops_implausible_memory(usage: Usage) -> None:
    memory = column(usage, "impossible", "memory")
    np.testing.assert_array_equal(memory[~np.isnan(memory)], 20 * MIB)
    assert 0 < np.count_nonzero(np.isnan(memory)) < 10


def test_prometheus_matches_namespace_names_literally(server: str, usage: Usage) -> None:
    only = asyncio.run(
        read(server, UsageQuery(start=T0, end=T0 + HOUR, step=60, namespaces=(SPECIAL_NAMESPACE, "sho.*")))
    )
    assert only.containers == (PodContainer(SPECIAL_NAMESPACE, "elsewhere", "app"),)
    assert PodContainer(SPECIAL_NAMESPACE, "elsewhere", "app") in usage.containers


async def test_prometheus_conforms_to_source_contract(server: str) -> None:
    async with source("prometheus", url=server) as prometheus:
        await conforms(prometheus, QUERY)


async def test_prometheus_read_in_shards_equals_whole_read(
    server: str, usage: Usage, raw: Literal[True, False]
) -> None:
    progress: list[float] = []
    small = {"samples_a_query": 50, "points_a_series": 17, "bytes_an_answer": 20_000}
    settings = PrometheusSettings(url=server, concurrency=8, raw_samples=raw, **small)
    async with Prometheus(settings) as prometheus:
        cut = await prometheus.read(QUERY, progress=progress.append)
        assert (await prometheus.estimate_cost(QUERY)).queries > 20
    assert cut.containers == usage.containers
    np.testing.assert_allclose(cut.cpu, usage.cpu, rtol=1e-12)
    np.testing.assert_array_equal(cut.memory, usage.memory)
    assert progress == sorted(progress)
    assert progress[-1] == pytest.approx(1)


async def test_prometheus_reads_window_shorter_than_scrape_interval(server: str, usage: Usage) -> None:
    t = T0 + HOUR + SCRAPE / 2
    one = await read(server, UsageQuery(start=t, end=t + 5, step=5))
    assert column(one, "steady", "cpu") == pytest.approx(0.5, rel=0.05)
    assert column(one, "steady", "memory") == [100 * MIB]


async def test_prometheus_value_returns_single_number_or_none(server: str) -> None:
    async with Prometheus(PrometheusSettings(url=server)) as prometheus:
        assert await query_value(prometheus.promql, "sum(machine_cpu_cores)", at=T0 + HOUR) == 8
        assert await query_value(prometheus.promql, "sum(no_such_series)", at=T0 + HOUR) is None
        assert await query_value(prometheus.promql, MEMORY, at=T0 + HOUR) is None
        with pytest.raises(UsageError, match="parse error"):
            await query_value(prometheus.promql, "sum(", at=T0 + HOUR)


async def test_prometheus_estimates_cost_before_read(server: str, usage: Usage) -> None:
    async with source("prometheus", url=server) as prometheus:
        cost = await prometheus.estimate_cost(QUERY)
    assert cost.queries == 2
    assert cost.series == pytest.approx(2 * len(usage.containers), abs=4)
    assert cost.samples == cost.series * QUERY.steps
    assert str(cost).startswith("2 queries, ")


async def test_prometheus_check_advises_when_container_metrics_are_missing(server: str) -> None:
    async with Prometheus(PrometheusSettings(url=server)) as prometheus:
        health = await prometheus.check()  # of now, and the metrics are a year old
    assert not health.ok
    assert "container_memory_working_set_bytes{} does not exist" in health.detail
    assert "/metrics/cadvisor" in health.advice


async def test_prometheus_reads_recording_rule_instead_of_raw_series(server: str) -> None:
    with pytest.raises(TrimtabError, match=r"no_such_rule.* does not exist"):
        await read(server, memory_rule="no_such_rule")
    usage = await read(server, cpu_rule=MEMORY)  # any gauge will do
    assert column(usage, "steady", "cpu")[5] != 0.5
