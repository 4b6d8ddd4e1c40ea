"""Test reading usage from a real VictoriaMetrics, which treats decreasing counters differently from Prometheus."""

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest

from harness.peers.recorded_prometheus import RecordedServers
from trimtab.usage.errors import UsageError
from trimtab.usage.prometheus import Prometheus, PrometheusSettings
from trimtab.usage.source import UsageQuery, query_value, source
from trimtab.usage.usage import PodContainer, Usage
from usage.conformance import conforms
from usage.recording import (
    CPU,
    MEMORY,
    MIB,
    SPECIAL_NAMESPACE,
    T0,
    MetricRecording,
    container_labels,
    example_recording,
)

QUERY = UsageQuery(start=T0, end=T0 + 7200, step=60)


@pytest.fixture(scope="module")
def url(servers: RecordedServers) -> Iterator[str]:
    with servers.serve("examples", example_recording().text, kind="victoriametrics") as url:
        yield url


@pytest.fixture(scope="module")
def usage(url: str) -> Usage:
    return asyncio.run(read(url))


async def read(url: str, **settings: int) -> Usage:
    async with Prometheus(PrometheusSettings.model_validate({"url": url, **settings})) as server:
        return await server.read(QUERY)


def place(usage: Usage, pod: str) -> int:
    (found,) = [i for i, container in enumerate(usage.containers) if container.pod == pod]
    return found


@pytest.mark.parametrize(
    ("pod", "cores", "within"),
    [
        ("steady", 0.5, 1e-6),
        ("restarted", 0.25, 0.4),
        ("away", 0.5, 1e-3),
        ("glitch", 0.5, 0.5),
        ("by-processor", 0.5, 1e-6),
        ("elsewhere", 0.125, 1e-6),
    ],
)
def test_victoriametrics_reads_cpu(usage: Usage, pod: str, cores: float, within: float) -> None:
    cpu = usage.cpu[3:, place(usage, pod)]
    assert np.count_nonzero(~np.isnan(cpu)) > 80
    np.testing.assert_allclose(cpu[~np.isnan(cpu)], cores, rtol=within)


def test_victoriametrics_reads_memory_without_implausible_values(usage: Usage) -> None:
    np.testing.assert_array_equal(usage.memory[:, place(usage, "steady")], 100 * MIB)
    odd = usage.memory[:, place(usage, "impossible")]
    np.testing.assert_array_equal(odd[~np.isnan(odd)], 20 * MIB)


def test_victoriametrics_keeps_gaps(usage: Usage) -> None:
    away = place(usage, "away")
    assert np.isnan(usage.cpu[43:70, away]).all()
    assert np.isnan(usage.memory[45:70, away]).all()


def test_victoriametrics_read_in_shards_differs_only_at_gap_edges(url: str, usage: Usage) -> None:
    cut = asyncio.run(read(url, samples_a_query=50, points_a_series=17, concurrency=8))
    assert cut.containers == usage.containers
    np.testing.assert_array_equal(cut.memory, usage.memory)
    both = ~np.isnan(cut.cpu) & ~np.isnan(usage.cpu)
    np.testing.assert_allclose(cut.cpu[both], usage.cpu[both])
    assert np.count_nonzero(np.isnan(cut.cpu) != np.isnan(usage.cpu)) <= 2


def test_victoriametrics_read_splits_namespace_above_series_limit(
    usage: Usage, servers: RecordedServers
) -> None:
    limit = "-search.maxUniqueTimeseries=4"
    with servers.serve("four-series", example_recording().text, limit, kind="victoriametrics") as address:
        few = asyncio.run(read(address))
    assert few.containers == usage.containers
    np.testing.assert_array_equal(few.memory, usage.memory)
    np.testing.assert_allclose(few.cpu, usage.cpu)


def test_victoriametrics_matches_namespace_names_literally(url: str) -> None:
    ask = UsageQuery(start=T0, end=T0 + 3600, step=60, namespaces=(SPECIAL_NAMESPACE, "sho.*"))

    async def only() -> Usage:
        async with Prometheus(PrometheusSettings(url=url)) as server:
            return await server.read(ask)

    assert asyncio.run(only()).containers == (PodContainer(SPECIAL_NAMESPACE, "elsewhere", "app"),)


async def test_victoriametrics_conforms_to_source_contract(url: str) -> None:
    async with source("prometheus", url=url) as server:
        await conforms(server, QUERY)


async def test_victoriametrics_check_reports_missing_cpu_metric(
    servers: RecordedServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 600.0
    monkeypatch.setattr("trimtab.usage.prometheus.source.time.time", lambda: T0 + now)
    recording = MetricRecording()
    recording.add(MEMORY, container_labels("web"), [(now - at, MIB) for at in (300, 240, 180, 120, 60, 0)])
    with servers.serve("memory-alone", recording.text, kind="victoriametrics") as address:
        async with source("prometheus", url=address) as server:
            health = await server.check()
    assert not health.ok
    assert health.detail == f"{address}: {CPU} does not exist"
    assert "scrape the kubelets" in health.advice


async def test_victoriametrics_passes_on_error_of_invalid_query(url: str) -> None:
    async with Prometheus(PrometheusSettings(url=url)) as server:
        assert await query_value(server.promql, "sum(machine_cpu_cores)", at=T0 + 3600) == 8
        with pytest.raises(UsageError, match="unexpected token"):
            await query_value(server.promql, "sum(", at=T0 + 3600)
