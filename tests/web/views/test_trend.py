"""The curves of the cluster: what its nodes cost, and what an earlier version has saved of them."""

from pathlib import Path
from types import SimpleNamespace

import aiohttp
import msgspec

from trimtab.scan.pricing import ResourcePrices
from trimtab.store import Store
from trimtab.web.app import build_app
from trimtab.web.auth import LocalAccess
from trimtab.web.backends.live import LiveBackend, _ClusterView
from trimtab.web.model import NodeSummary
from trimtab.web.server import serve_dashboard
from trimtab.web.views.trend import ClusterTotals, Trend

WITHOUT_COST = [1000.0, 1.0, 0.5, 8.0, 1e9, 5e8, 3e10]


def totals(at: float, node_cost: float) -> ClusterTotals:
    return ClusterTotals(at, 1.0, 0.5, 8.0, 2.0**30, 5e8, 3e10, node_cost)


def test_trend_of_an_earlier_version_has_no_cost_of_nodes_yet() -> None:
    trend = Trend(every=60.0)
    trend.restore(msgspec.msgpack.encode([1, 60.0, [WITHOUT_COST]]))
    before = trend.first_node_cost
    trend.add(totals(2000.0, 300.0))
    assert (before, trend.first_node_cost) == (None, 300.0)
    prices = ResourcePrices(cpu=0.01, memory=0.01)
    plot = trend.plot_cost(
        "€", lambda cores, size: prices.price_cpu(cores * 1000) + prices.price_memory(size)
    )
    nodes, requested = plot.curves
    assert (plot.unit, nodes.values) == ("€ a month", (None, 300.0))
    assert requested.values[1] == 14.6


async def test_overview_shows_what_the_bill_of_the_nodes_fell_by(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        operator = SimpleNamespace(cluster_name="test", store=store, stop_reason=lambda: "")
        board = LiveBackend(lambda: operator, name="test", clock=lambda: 200.0)  # type: ignore[arg-type, return-value]
        for each in (totals(0.0, 400.0), totals(100.0, 300.0)):
            board._trend.add(each)
        nodes = (NodeSummary(name="dear", cost=250.0), NodeSummary(name="cheap", cost=50.0))
        board._view = _ClusterView(observed_at=200.0, nodes=nodes, totals=totals(100.0, 300.0), problem="")
        money = (await board.overview()).money
        assert (money.nodes, money.nodes_at_first) == (300.0, 400.0)
        async with (
            serve_dashboard(build_app(board, LocalAccess()), "127.0.0.1:0") as url,
            aiohttp.ClientSession() as session,
        ):
            async with session.get(f"{url}/parts/overview") as answer:
                assert "the bill fell by $100</b> (25%)" in await answer.text()
            async with session.get(f"{url}/plots/overview") as answer:
                assert '"nodes"' in await answer.text()
            async with session.get(f"{url}/nodes?sort=-cost") as answer:
                text = await answer.text()
            assert text.index("dear") < text.index("cheap")
            assert "$250" in text
            async with session.get(f"{url}/nodes/dear") as answer:
                assert "$250 a month" in await answer.text()
