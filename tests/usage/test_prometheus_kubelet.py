"""A real container, a real kubelet, a real Prometheus: what we read is what it does."""

import asyncio
import time

from harness import images
from harness.cluster import Cluster
from harness.prometheus import Prometheus as RealPrometheus
from trimtab.usage.prometheus import Prometheus, PrometheusSettings
from trimtab.usage.source import Ask
from trimtab.usage.usage import PodContainer, Usage


async def test_the_series_of_a_real_kubelet_are_read(
    node_cluster: Cluster, namespace: str, prometheus: RealPrometheus
) -> None:
    container = {
        "name": "worker",
        "image": images.BUSYBOX,
        "imagePullPolicy": "Never",
        "args": ["-c", "while true; do for i in $(seq 1000); do :; done; sleep 0.1; done"],
        "resources": {"limits": {"cpu": "200m", "memory": "64Mi"}},
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    node_cluster.call(
        "POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "busy"}, "spec": spec}
    )
    async with Prometheus(PrometheusSettings(url=prometheus.url)) as source:
        async with asyncio.timeout(120):
            while not ((usage := await _read(source, namespace)) and (usage.cpu > 0).any()):
                await asyncio.sleep(0.5)
        health = await source.check()
    assert usage.containers == (PodContainer(namespace, "busy", "worker"),)
    assert 0 < usage.cpu[usage.cpu > 0].max() < 0.5
    assert 0 < usage.memory[usage.memory > 0].max() < 64 * 2**20
    assert health.ok
    assert "throttling" in health.detail
    assert source.capabilities.throttling


async def _read(source: Prometheus, namespace: str) -> Usage | None:
    """The last two minutes; None while Prometheus has nothing yet."""
    if not (await source.check()).ok:
        return None
    return await source.read(Ask.last(120, now=time.time(), step=10, namespaces=[namespace]))
