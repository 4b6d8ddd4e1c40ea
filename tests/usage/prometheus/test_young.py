"""Test windows without samples: the Prometheus server is new or was down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from harness.peers.recorded_prometheus import RecordedServers
from trimtab.kube.rest.http_transport import HttpTransport
from trimtab.usage.errors import UsageError
from trimtab.usage.prometheus import Prometheus, PrometheusSettings
from trimtab.usage.source import UsageQuery
from usage.prometheus.conftest import NOW
from usage.recording import MEMORY, MIB, SCRAPE, T0, MetricRecording, container_labels

HOUR, DAY = 3600.0, 86400.0
GAP = range(240, 600)
"""Scrapes from the second to the fifth hour, in which the server was down."""
LAST = T0 + 720 * SCRAPE


@pytest.fixture(scope="module")
def server(servers: RecordedServers) -> Iterator[str]:
    """A server that was started at T0, was down from the second hour to the fifth, and has been up until the sixth."""
    recording = MetricRecording()
    for scrapes in (range(GAP.start), range(GAP.stop, 720)):
        recording.container(container_labels("web"), cores=0.5, memory=100 * MIB, scrapes=scrapes)
    with servers.serve("was-down", recording.text) as url:
        yield url


@pytest.mark.parametrize(
    ("start", "end"),
    [(T0 - 8 * DAY, T0 - 8 * DAY + HOUR), (T0 + 3 * HOUR, T0 + 4 * HOUR)],
    ids=["before it was started", "while it was down"],
)
@pytest.mark.parametrize("namespaces", [None, ("shop",)])
async def test_prometheus_reads_a_window_without_samples_as_empty(
    server: str, start: float, end: float, namespaces: tuple[str, ...] | None
) -> None:
    ask = UsageQuery(start=start, end=end, step=300.0, namespaces=namespaces)
    async with Prometheus(PrometheusSettings(url=server)) as prometheus:
        usage = await prometheus.read(ask)
        cost = await prometheus.estimate_cost(ask)
    assert (usage.start, usage.steps, usage.sample_count) == (start, 12, 0)
    assert usage.ooms in (None, ())
    assert cost.samples == 0


async def test_prometheus_reads_window_that_began_before_first_sample(server: str) -> None:
    async with Prometheus(PrometheusSettings(url=server)) as prometheus:
        usage = await prometheus.read(UsageQuery(start=T0 - DAY, end=LAST, step=300.0))
    (column,) = usage.memory.T
    seen = usage.times[~np.isnan(column)]
    assert seen[0] == T0
    assert not ((seen > T0 + 2 * HOUR + 300) & (seen < T0 + 5 * HOUR)).any()
    assert seen[-1] >= LAST - 600


async def test_prometheus_sends_one_request_per_window_without_samples(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearly all windows of a new server are empty: none may cost a whole inventory of its series."""
    asked: list[str] = []
    exchange = HttpTransport.exchange

    def counting(self: HttpTransport, method: str, path: str, **options: Any) -> Any:
        asked.append(path)
        return exchange(self, method, path, **options)

    async with Prometheus(PrometheusSettings(url=server)) as prometheus:
        await prometheus.read(UsageQuery(start=T0 - DAY, end=T0 - DAY + HOUR, step=300.0))
        monkeypatch.setattr(HttpTransport, "exchange", counting)
        for hour in range(10):
            start = T0 - DAY + (1 + hour) * HOUR
            await prometheus.read(UsageQuery(start=start, end=start + HOUR, step=300.0))
    assert len(asked) == 10


async def test_prometheus_rejects_server_that_never_had_container_samples(server: str) -> None:
    """A server without later samples is not new: it does not scrape kubelets."""
    async with Prometheus(PrometheusSettings(url=server)) as prometheus:
        with pytest.raises(UsageError, match="does not exist"):
            await prometheus.read(UsageQuery(start=NOW - HOUR, end=NOW, step=300.0))


async def test_prometheus_accepts_usage_of_node_present_for_part_of_window(
    servers: RecordedServers,
) -> None:
    """The largest machine of a window is that of any time in it, not of the few moments at which series are counted."""
    recording = MetricRecording()
    night = range(60, 100)
    for metric, small, large in (("machine_cpu_cores", 4, 64), ("machine_memory_bytes", 2**33, 2**38)):
        recording.add(metric, {"node": "small"}, [(SCRAPE * i, small) for i in range(480)])
        recording.add(metric, {"node": "large"}, [(SCRAPE * i, large) for i in night])
    recording.container(container_labels("web"), cores=0.5, memory=100 * MIB, scrapes=range(480))
    recording.container(container_labels("night"), cores=30, memory=192 * 2.0**30, scrapes=night)
    glitch = [(SCRAPE * i, 2.0**45 if i == 200 else 100 * MIB) for i in range(480)]
    recording.add(MEMORY, container_labels("glitch"), glitch)
    with servers.serve("large-node-at-night", recording.text) as url:
        async with Prometheus(PrometheusSettings(url=url)) as prometheus:
            usage = await prometheus.read(UsageQuery(start=T0, end=T0 + 4 * HOUR, step=60.0))
    columns = {container.pod: place for place, container in enumerate(usage.containers)}
    assert np.nanmax(usage.memory[:, columns["night"]]) == 192 * 2.0**30
    assert np.nanmax(usage.cpu[:, columns["night"]]) == pytest.approx(30, rel=0.01)
    assert np.nanmax(usage.memory[:, columns["glitch"]]) == 100 * MIB


@pytest.mark.parametrize(
    ("late", "steps"),
    [(0, 3), (280, 3), (580, 12), (1500, 40), *((late, 14 * 24 * 60) for late in (0, 280, 580, 1500))],
)
async def test_prometheus_estimates_scrape_interval_by_samples_that_are_late(
    servers: RecordedServers, late: int, steps: int
) -> None:
    """A longer interval would widen the look-back of CPU: its samples would smooth peaks."""
    recording = MetricRecording()
    recording.container(container_labels("web"), cores=0.5, memory=100 * MIB, scrapes=range(240))
    end = T0 + 239 * SCRAPE + late
    with servers.serve("late", recording.text) as url:
        async with Prometheus(PrometheusSettings(url=url)) as prometheus:
            usage = await prometheus.read(UsageQuery(start=end - 60 * steps, end=end, step=60.0))
            assert prometheus.capabilities.interval == pytest.approx(SCRAPE, rel=0.06)
    if steps > 3:  # fewer have no complete rate
        assert np.nanmax(usage.cpu) == pytest.approx(0.5, rel=0.01)
