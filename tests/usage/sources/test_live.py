"""Test sampling of a real container through kubelet and metrics-server."""

import math
import time

import msgspec
import pytest

from trimtab.usage.errors import SourceRefused, UsageResponseError
from trimtab.usage.source import UsageQuery, source
from trimtab.usage.sources import kubelet
from trimtab.usage.sources.metrics_server import parse_pod_metrics
from trimtab.usage.usage import PodContainer

MIB = 2.0**20


@pytest.mark.parametrize("name", ["metrics-server", "kubelet"])
async def test_live_sources_require_client_or_history(name: str) -> None:
    live = source(name)
    assert (await live.check()).advice == "give a client"
    with pytest.raises(SourceRefused):
        await live.read(UsageQuery.last(600, now=time.time(), step=60))


def test_parse_pod_metrics_skips_invalid_quantity() -> None:
    page = b"""{"items": [{"metadata": {"name": "web-0", "namespace": "shop"}, "timestamp": "2026-11-15T12:00:00Z",
        "window": "15s", "containers": [{"name": "web", "usage": {"cpu": "1500000n", "memory": "much"}},
                                        {"name": "log", "usage": {"memory": "64Mi"}}]}]}"""
    web, log = parse_pod_metrics(page)
    assert web.container == PodContainer("shop", "web-0", "web")
    assert (web.at, web.cpu) == (1794744000.0, 0.0015)
    assert math.isnan(web.memory)
    assert math.isnan(log.cpu)
    assert log.memory == 64 * MIB


def test_parse_pod_metrics_rejects_other_responses() -> None:
    for page in (b'{"items": [{"metadata": {}}]}', b'{"items": [{"metadata": {"name": "\xfc"}}]}'):
        with pytest.raises(UsageResponseError, match="not a list of PodMetrics"):
            parse_pod_metrics(page)


def test_parse_summary_reads_pods_beside_pod_without_containers() -> None:
    """Go encodes an empty list as null."""
    empty = {"podRef": {"name": "starting", "namespace": "shop"}, "containers": None}
    cpu = {"time": "2026-11-15T12:00:00Z", "usageNanoCores": 5e8}
    web = {
        "podRef": {"name": "web", "namespace": "shop"},
        "containers": [{"name": "app", "cpu": cpu, "memory": {"workingSetBytes": 64 * MIB}}],
    }
    (found,) = kubelet.parse_summary(msgspec.convert({"pods": [empty, web]}, kubelet._Summary))
    assert (found.container, found.cpu, found.memory) == (PodContainer("shop", "web", "app"), 0.5, 64 * MIB)
    assert kubelet.parse_summary(msgspec.convert({"pods": None}, kubelet._Summary)) == []
    assert parse_pod_metrics(b'{"items": null}') == []


def test_kubelet_url_uses_first_address_of_dual_stack_node() -> None:
    """Clouds list the IPv6 address of a node even where pods have IPv4 only."""
    addresses = [{"type": "InternalIP", "address": each} for each in ("10.0.0.5", "fd00::5")]
    both, later = (
        msgspec.convert({"metadata": {"name": "n"}, "status": {"addresses": each}}, kubelet.KubeletNode)
        for each in (addresses, addresses[1:])
    )
    assert both.kubelet_url("InternalIP") == "https://10.0.0.5:10250"
    assert later.kubelet_url("InternalIP") == "https://[fd00::5]:10250"
