"""The reported NodeMetric, accepted by a real API server."""

from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry

from harness.builders.objects import node
from harness.cluster.cluster import Cluster
from node.reporter.test_reporter import MIB, NOW, VIEW, observed_node
from trimtab.api.nodemetric import AggregatePolicy, MetricCollectPolicy, NodeMetricStatus
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import Client, PatchType
from trimtab.kube.rest.resources import NODE_METRICS, NODES
from trimtab.node.prediction import ResourceAmounts
from trimtab.node.reporter import Reporter, build_status
from trimtab.usage.source import UsageQuery, source
from trimtab.usage.sources.nodemetric import parse_node_metrics


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    cluster.learn()
    async with Client(load_connection(kubeconfig=cluster.kubeconfig)) as made:
        yield made


async def test_reporter_writes_a_nodemetric_that_the_usage_source_reads(client: Client) -> None:
    series, asked = observed_node(300), []

    def status(policy: MetricCollectPolicy) -> NodeMetricStatus:
        asked.append(policy)
        return build_status(VIEW, series, policy, ResourceAmounts(1500, MIB), now=NOW)

    uids: list[str] = []
    reporter = Reporter(client, "node-1", status, uid=lambda: "".join(uids), registry=CollectorRegistry())
    assert not await reporter.report()  # nothing is reported without a node
    uids.append((await client.create(NODES, node("node-1")))["metadata"]["uid"])
    assert await reporter.report()
    found = await client.get(NODE_METRICS, "node-1")
    [owner] = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Node", uids[0])
    assert found["status"]["nodeMetric"]["nodeUsage"] == {"cpu": "1495m", "memory": "64Mi"}
    assert found["status"]["updateTime"] == "2027-01-15T08:00:00Z"
    # Others' agents may report to the same server.
    [first, second] = [
        one for one in parse_node_metrics(await _page(client)) if one.container.namespace == "shop"
    ]
    assert (first.container.namespace, first.container.pod, first.container.container) == (
        "shop",
        "web",
        "c0",
    )
    assert (first.at, first.cpu, first.memory) == (NOW, 1.495, 64 * MIB)
    assert second.container.container == "c1"

    wanted = {"aggregateDurationSeconds": 120, "nodeAggregatePolicy": {"durations": ["2m"]}}
    body = {"spec": {"metricCollectPolicy": wanted | {"reportIntervalSeconds": 10}}}
    await client.patch(NODE_METRICS, "node-1", body, type=PatchType.MERGE)
    series = observed_node(10)
    await reporter.report()
    assert asked[-1].aggregate_duration_seconds == 120
    assert asked[-1].node_aggregate_policy == AggregatePolicy.model_validate({"durations": ["2m"]})
    found = await client.get(NODE_METRICS, "node-1")
    assert "nodeUsage" not in found["status"]["nodeMetric"]  # an unknown value is no longer reported
    assert found["status"].get("podsMetric", []) == []

    async with source("nodemetric", client=client) as usage:
        health = await usage.check()
        assert health.detail
        read = await usage.read(UsageQuery.last(300, now=NOW, step=60, namespaces=["shop"]))
        assert read.containers == ()
    await client.delete(NODE_METRICS, "node-1")
    await client.delete(NODES, "node-1")


async def _page(client: Client) -> bytes:
    async for page in client.list_pages(NODE_METRICS):
        return page
    raise AssertionError("a list has a page")
