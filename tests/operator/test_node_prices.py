"""The prices of nodes: OpenCost's documented API, a price list by labels, and the price of what a node has."""

import asyncio
import gzip
import json
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from harness.builders.objects import node
from harness.builders.records import project_object
from trimtab.http_server import serve_application
from trimtab.kube.kinds.nodes import Node, node_projection
from trimtab.operator import node_prices
from trimtab.operator.config.loader import ConfigurationError, load_configuration
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
        # The discount is of the prices of CPU and memory.
        [730 * 0.03, 730 * 0.1, 365 * (4 * 0.02 + 16 * 0.001)]
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
    assert found == pytest.approx({"m5.large": 730 * 0.13, "c5.xlarge": 365 * 0.096})


def test_node_price_without_an_hour_is_rejected() -> None:
    """With pydantic 2.11.4 such nodes cost nothing: the field had the default of another one."""
    with pytest.raises(ConfigurationError, match=r"prices\.nodes\[0\]\.hour"):
        load_configuration(text="prices: {nodes: [{labels: {a: b}}]}", environment={})


@pytest.mark.parametrize("field", ["cpu", "memory", "nodes[0].hour"])
def test_configuration_rejects_prices_that_no_sum_holds(field: str) -> None:
    prices = {"cpu": "1", "memory": "1", "hour": "1"} | {field.rpartition(".")[2]: "1.0e+300"}
    text = f"prices: {{cpu: {prices['cpu']}, memory: {prices['memory']}, nodes: [{{labels: {{a: b}}, hour: {prices['hour']}}}]}}"
    with pytest.raises(ConfigurationError, match=rf"prices\.{re.escape(field)}: must be at most 1000000"):
        load_configuration(text=text, environment={})


def test_cost_of_the_largest_node_at_the_highest_price_is_finite() -> None:
    body = node("large")
    body["status"]["capacity"] = {"cpu": str(2**63 - 1), "memory": str(2**63 - 1), "pods": "110"}
    largest = project_object(node_projection(), body)
    metrics, highest = Metrics(), PriceSettings(cpu=1e6, memory=1e6)
    CostGauges(metrics, NodePrices(lambda: highest)).update([], highest, now=0.0, nodes=[largest] * 1000)
    (cost,) = (
        sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "trimtab_node_cost_per_month"
    )
    assert math.isfinite(cost)


@asynccontextmanager
async def opencost(answer: Callable[[], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """Serve the assets API; yield the setting that names it."""

    async def assets(request: web.Request) -> web.StreamResponse:
        assert request.query == {"window": "1d"}
        return await answer()

    app = web.Application()
    app.router.add_get("/model/assets", assets)
    async with serve_application(app, "127.0.0.1:0") as port:
        yield f"  openCost: http://127.0.0.1:{port}/model/\n"


async def test_node_prices_follow_opencost_and_keep_the_last_ones() -> None:
    answers = [web.json_response(ASSETS), web.Response(status=503), web.json_response({"data": [1]})]

    async def answer() -> web.Response:
        return answers.pop(0)

    async with opencost(answer) as setting:
        found = NodePrices(lambda: prices(setting))
        await found.refresh()
        # OpenCost's costs have the discounts already; it does not know the others.
        expected = pytest.approx([730 * 0.2, 730 * 0.1, 365 * 0.096])
        assert [found.monthly_cost(each) for each in NODES] == expected
        for problem in ("HTTP 503; check prices.openCost", "not one of the assets API"):
            with pytest.raises(OpenCostError, match=problem):
                await found.refresh()
        assert [found.monthly_cost(each) for each in NODES] == expected


def test_parse_node_costs_reads_the_list_of_windows_of_kubecost() -> None:
    body = json.dumps({"code": 200, "data": [ASSETS["data"]]}).encode()
    assert parse_node_costs(body).hourly == {"a": pytest.approx(0.2)}


@pytest.mark.parametrize("body", [b'{"data": null}', b'{"data": {}}', b'{"data": [null, {}]}'])
def test_parse_node_costs_refuses_an_answer_without_nodes(body: bytes) -> None:
    with pytest.raises(OpenCostError, match="no cost of any node"):
        parse_node_costs(body)


@pytest.mark.parametrize("field", ["totalCost", "minutes"])
def test_parse_node_costs_refuses_numbers_that_no_float_holds(field: str) -> None:
    asset = {"type": "Node", "properties": {"name": "a"}, "minutes": 60, "totalCost": 1} | {field: 10**400}
    with pytest.raises(OpenCostError, match="not one of the assets API"):
        parse_node_costs(json.dumps({"data": {"a": asset}}).encode())


def test_parse_node_costs_ignores_assets_that_tell_no_cost_of_one_node() -> None:
    def asset(name: str | None, cost: float) -> dict[str, object]:
        return {"type": "Node", "properties": {"name": name}, "minutes": 60, "totalCost": cost}

    data = {
        "east/a": asset("a", 1.0),
        "west/a": asset("a", 9.0),
        "east/b": asset("b", 2.0),
        "nameless": asset(None, 1.0),
        "absurd": asset("absurd", 1e300),
    }
    found = parse_node_costs(json.dumps({"data": data}).encode())
    assert found.hourly == {"b": pytest.approx(2.0)}
    assert found.ambiguous == ("a",)


def opencost_node(name: str, cluster: str | None, *, cost: float, minutes: float = 60.0) -> dict[str, object]:
    properties = {"name": name} | ({"cluster": cluster} if cluster else {})
    return {"type": "Node", "properties": properties, "minutes": minutes, "totalCost": cost}


def test_parse_node_costs_says_that_no_node_names_its_cluster() -> None:
    body = json.dumps({"data": {"a": opencost_node("a", None, cost=1.0)}}).encode()
    with pytest.raises(
        OpenCostError, match=r"name no cluster; remove prices\.openCostCluster, which is east"
    ):
        parse_node_costs(body, cluster="east")
    assert parse_node_costs(body).hourly == {"a": pytest.approx(1.0)}


def test_parse_node_costs_takes_a_node_replaced_under_its_name_as_one() -> None:
    data = {
        "east/i-1": opencost_node("a", "east", cost=1.0, minutes=60.0),
        "east/i-2": opencost_node("a", "east", cost=6.0, minutes=180.0),
        "west/i-3": opencost_node("a", "west", cost=9.0),
    }
    body = json.dumps({"data": data}).encode()
    found = parse_node_costs(body, cluster="east")
    assert found.hourly == {"a": pytest.approx(7 / 4)}
    assert not found.ambiguous
    assert parse_node_costs(body).ambiguous == ("a",)
    longest = {key: each | {"minutes": 1e308} for key, each in data.items()}
    (cost,) = parse_node_costs(json.dumps({"data": longest}).encode(), cluster="east").hourly.values()
    assert math.isfinite(cost)


def two_clusters() -> dict[str, object]:
    def asset(cluster: str, cost: float) -> dict[str, object]:
        return {
            "type": "Node",
            "properties": {"name": "a", "cluster": cluster},
            "minutes": 60,
            "totalCost": cost,
        }

    return {"data": {"east/a": asset("east", 1.0), "west/a": asset("west", 9.0)}}


async def test_node_prices_take_the_costs_of_the_own_cluster() -> None:
    async def answer() -> web.Response:
        return web.json_response(two_clusters())

    async with opencost(answer) as setting:
        cluster = ""
        found = NodePrices(lambda: prices(setting + cluster))
        with capture_logs() as logs:
            await found.refresh()
        assert found.monthly_cost(NODES[0]) == pytest.approx(730 * 0.03)
        assert [(each["event"], each["nodes"]) for each in logs] == [("prices.opencost_ambiguous", "a")]
        cluster = "  openCostCluster: west\n"
        # The costs of another cluster are not used, not even until the next request.
        assert found.monthly_cost(NODES[0]) == pytest.approx(730 * 0.03)
        with capture_logs() as logs:
            await found.refresh()
        assert found.monthly_cost(NODES[0]) == pytest.approx(730 * 9.0)
        assert logs == []
        cluster = "  openCostCluster: north\n"
        with pytest.raises(
            OpenCostError, match=r"no cluster north, but east, west; set prices\.openCostCluster"
        ):
            await found.refresh()


async def test_node_prices_drop_the_costs_of_an_opencost_that_is_no_longer_configured() -> None:
    async def answer() -> web.Response:
        return web.json_response(ASSETS)

    async with opencost(answer) as setting:
        settings = prices(setting)
        found = NodePrices(lambda: settings)
        await found.refresh()
        assert found.monthly_cost(NODES[0]) == pytest.approx(730 * 0.2)
        settings = prices()
        assert found.monthly_cost(NODES[0]) == pytest.approx(730 * 0.03)


async def test_node_prices_notice_another_opencost_while_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = asyncio.Event()

    async def answer() -> web.Response:
        answered.set()
        return web.json_response(ASSETS)

    monkeypatch.setattr(node_prices, "_POLL_INTERVAL", 0.01)
    async with opencost(answer) as setting:
        settings = prices()
        found = NodePrices(lambda: settings)
        task = asyncio.create_task(found.run())
        await asyncio.sleep(0.05)
        settings = prices(setting)
        async with asyncio.timeout(10):
            await answered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("url", ["http://.", f"http://{'a' * 64}.example", "http://127.0.0.1:1"])
async def test_node_prices_go_on_whatever_url_and_answer_they_have(url: str) -> None:
    """A label that no DNS knows ended the session of the leader."""
    found = NodePrices(lambda: PriceSettings.model_construct(open_cost=url))
    task = asyncio.create_task(found.run())
    with capture_logs() as logs:
        async with asyncio.timeout(10):
            while not logs and not task.done():
                await asyncio.sleep(0.01)
    assert not task.done()
    task.cancel()
    assert [each["event"] for each in logs] == ["prices.opencost_failed"]


async def test_node_prices_survive_any_error_of_a_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: bytes, *, cluster: str | None) -> dict[str, float]:
        del cluster
        raise MemoryError

    async def answer() -> web.Response:
        return web.json_response(ASSETS)

    monkeypatch.setattr(node_prices, "parse_node_costs", fail)
    async with opencost(answer) as setting:
        found = NodePrices(lambda: prices(setting))
        assert await found._try_refresh() == "MemoryError()"


async def test_node_prices_bound_the_answer_and_follow_no_redirect() -> None:
    async def bomb() -> web.Response:
        body = gzip.compress(bytes(33 << 20))
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    async def redirect() -> web.Response:
        raise web.HTTPFound("/model/assets?window=1d")

    for answer, problem in ((bomb, "larger than 33,554,432 bytes"), (redirect, "HTTP 302")):
        async with opencost(answer) as setting:
            found = NodePrices(partial(prices, setting))
            with pytest.raises(OpenCostError, match=problem):
                await found.refresh()


@pytest.mark.parametrize(
    "url",
    [
        "http://.",
        f"http://{'a' * 64}.example",
        "http://me:secret@opencost:9003",
        "http://opencost:9003?window=2d",
        "http://opencost:9003#assets",
        "http://opencost:port",
    ],
)
def test_configuration_rejects_an_opencost_that_is_no_server(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"prices\.openCost") as raised:
        prices(f"  openCost: {url}\n")
    assert "secret" not in str(raised.value)
