"""Test reading the usage of a real container through a real kubelet and Prometheus."""

import asyncio
import time
from contextlib import suppress

from harness.peers.prometheus import Prometheus as RealPrometheus
from trimtab.usage.errors import SourceRefused
from trimtab.usage.prometheus import Prometheus, PrometheusSettings
from trimtab.usage.source import UsageQuery
from trimtab.usage.usage import PodContainer, Usage


async def test_prometheus_reads_series_of_real_kubelet(
    plodder: PodContainer, prometheus: RealPrometheus
) -> None:
    async with Prometheus(PrometheusSettings(url=prometheus.url)) as source:
        async with asyncio.timeout(120):
            while not ((usage := await _read(source, plodder.namespace)) and (usage.cpu > 0).any()):
                await asyncio.sleep(0.5)
        health = await source.check()
    assert usage.containers == (plodder,)
    assert 0 < usage.cpu[usage.cpu > 0].max() < 0.5
    assert 0 < usage.memory[usage.memory > 0].max() < 64 * 2**20
    assert health.ok
    assert "throttling" in health.detail
    assert source.capabilities.throttling


async def _read(source: Prometheus, namespace: str) -> Usage | None:
    """The last two minutes; None while Prometheus has nothing of them yet."""
    with suppress(SourceRefused):
        return await source.read(UsageQuery.last(120, now=time.time(), step=4, namespaces=[namespace]))
    return None
