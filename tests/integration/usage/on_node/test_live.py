"""Test sampling of a real container through kubelet and metrics-server."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness.cluster.cluster import Cluster
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.capabilities import get_cluster_uid
from trimtab.kube.rest.client import Client
from trimtab.store import Store
from trimtab.usage.source import Source, UsageQuery, source
from trimtab.usage.usage import PodContainer, Usage
from usage.conformance import conforms
from usage.sources.test_live import MIB


@pytest.fixture
async def client(node_cluster: Cluster) -> AsyncIterator[Client]:
    async with Client(load_connection(kubeconfig=node_cluster.kubeconfig)) as client:
        yield client


@pytest.mark.parametrize(
    ("name", "settings"), [("metrics-server", {}), ("kubelet", {"reach": "direct", "address": "Hostname"})]
)
async def test_live_sources_sample_real_container_and_keep_history(
    name: str, settings: dict[str, str], plodder: PodContainer, client: Client, tmp_path: Path
) -> None:
    address = tmp_path / "trimtab.db"
    async with Store.open(address) as store:
        async with source(name, client=client, store=store, interval=1, **settings) as live:
            async with asyncio.timeout(120):
                while (
                    not (usage := await _last(live, plodder.namespace)).cpu.size or not (usage.cpu > 0).any()
                ):
                    await asyncio.sleep(0.5)
        _is_the_plodder(usage, plodder)
    async with Store.open(address) as store:
        # Without a client: from the stored history, under the uid of the cluster.
        again = source(name, store=store, cluster=await get_cluster_uid(client))
        _is_the_plodder(await _last(again, plodder.namespace), plodder)
        await conforms(again, UsageQuery.last(600, now=time.time(), step=60))


async def _last(live: Source[Any], namespace: str) -> Usage:
    return await live.read(UsageQuery.last(600, now=time.time(), step=60, namespaces=[namespace]))


def _is_the_plodder(usage: Usage, plodder: PodContainer) -> None:
    assert usage.containers == (plodder,)
    assert 0 < usage.cpu[usage.cpu > 0].max() < 0.5
    assert 0 < usage.memory[usage.memory > 0].max() < 64 * MIB


async def test_kubelet_check_reports_node_that_api_server_cannot_proxy(client: Client) -> None:
    """The API server does not proxy to loopback, where the node of these tests listens."""
    health = await source("kubelet", client=client, reach="proxy").check()
    assert not health.ok
    assert "address not allowed" in health.detail
    assert "nodes/proxy" in health.advice
