"""The prices of nodes: OpenCost's documented API, a price list by labels, and the price of what a node has."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from harness.builders.objects import node
from harness.builders.records import project_object
from trimtab.http_server import serve_application
from trimtab.kube.kinds.nodes import Node, node_projection
from trimtab.operator.config.loader import load_configuration
from trimtab.operator.config.model import PriceSettings
from trimtab.operator.cost_gauges import CostGauges
from trimtab.operator.metrics import Metrics
from trimtab.operator.node_prices import NodePrices, OpenCostError, parse_node_costs

PRICES = """
prices:
  cpu: 0.02
  memory: 0.001
  discount: 0.5
  nodes:
    - {labels: {node.kubernetes.io/instance-type: m5.large, karpenter.sh/capacity-type: spot}, hour: 0.03}
    - {labels: {node.kubernetes.io/instance-type: m5.large}, hour: 0.1}
"""
ASSETS = {
    "code": 200,
    "data": {
        "node-a": {"type": "Node", "properties": {"name": "a"}, "minutes": 720.0, "totalCost": 2.4},
        "disk": {"type": "Disk", "properties": {"name": "a"}, "minutes": 1440.0, "totalCost": 9.0},
        "new": {"type": "Node", "properties": {"name": "new"}, "minutes": 0.0, "totalCost": 0.0},
    },
}


def built(name: str, **labels: str) -> Node:
    keys = {"type": "node.kubernetes.io/instance-type", "capacity": "karpenter.sh/capacity-type"}
    body = node(name)
    body["metadata"]["labels"] = {keys[key]: value for key, value in labels.items()}
    body["status"]["capacity"] = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    return project_object(node_projection(), body)


NODES = [
    built("a", type="m5.large", capacity="spot"),
    built("b", type="m5.large", capacity="on-demand"),
    built("c", type="c5.xlarge"),
]


def prices(more: str = "") -> PriceSettings:
    return load_configuration(text=PRICES + more, environment={}).prices


def test_node_prices_take_the_first_entry_whose_labels_a_node_has() -> None:
    found = NodePrices(prices)
    assert [found.monthly_cost(each) for each in NODES] == pytest.approx(
        [365 * 0.03, 365 * 0.1, 365 * (4 * 0.02 + 16 * 0.001)]
    )


def test_cost_gauges_show_the_bill_by_instance_type() -> None:
    metrics = Metrics()
    CostGauges(metrics, NodePrices(prices)).update([], prices(), now=0.0, nodes=NODES)
    found = {
        sample.labels["instance_type"]: sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "trimtab_node_cost_per_month"
    }
    assert found == pytest.approx({"m5.large": 365 * 0.13, "c5.xlarge": 365 * 0.096})


@asynccontextmanager
async def opencost(answer: Callable[[], Awaitable[web.Response]]) -> AsyncIterator[NodePrices]:
    async def assets(request: web.Request) -> web.Response:
        assert request.query == {"window": "1d"}
        return await answer()

    app = web.Application()
    app.router.add_get("/model/assets", assets)
    async with serve_application(app, "127.0.0.1:0") as port:
        yield NodePrices(lambda: prices(f"  openCost: http://127.0.0.1:{port}/model/\n"))


async def test_node_prices_follow_opencost_and_keep_the_last_ones() -> None:
    answers = [web.json_response(ASSETS), web.Response(status=503), web.json_response({"data": [1]})]

    async def answer() -> web.Response:
        return answers.pop(0)

    async with opencost(answer) as found:
        await found.refresh()
        # OpenCost's costs have the discounts already; it does not know the others.
        expected = pytest.approx([730 * 0.2, 365 * 0.1, 365 * 0.096])
        assert [found.monthly_cost(each) for each in NODES] == expected
        for problem in ("HTTP 503; check prices.openCost", "not one of the assets API"):
            with pytest.raises(OpenCostError, match=problem):
                await found.refresh()
        assert [found.monthly_cost(each) for each in NODES] == expected


def test_parse_node_costs_reads_the_list_of_windows_of_kubecost() -> None:
    body = json.dumps({"code": 200, "data": [ASSETS["data"]]}).encode()
    assert parse_node_costs(body) == {"a": pytest.approx(0.2)}
    assert parse_node_costs(b'{"data": null}') == {}
