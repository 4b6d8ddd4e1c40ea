"""The board of a leader on a real API server: what it shows, and that a hold reaches the loop and binds it."""

from __future__ import annotations

import aiohttp

from trimtab.scan.pricing import ResourcePrices
from trimtab.web.app import build_app
from trimtab.web.auth import LocalAccess
from trimtab.web.backends.live import STANDBY, LiveBackend
from trimtab.web.server import serve_dashboard


async def test_live_backend_of_standby_replica_says_so_on_every_page() -> None:
    board = LiveBackend(lambda: None, name="test")
    await board.refresh()
    paths = ("/", "/workloads", "/workloads/shop/Deployment/web", "/intents", "/nodes", "/history")
    async with (
        serve_dashboard(build_app(board, LocalAccess()), "127.0.0.1:0") as url,
        aiohttp.ClientSession() as session,
    ):
        for path in paths:
            async with session.get(url + path) as answer:
                text = await answer.text()
            assert STANDBY in text, path
            assert "There are no" not in text, path
            assert "$0.00" not in text, path


def test_live_backend_follows_changed_prices() -> None:
    prices = ResourcePrices()
    board = LiveBackend(lambda: None, name="test", prices=lambda: prices)
    assert board.currency == "$"
    prices = ResourcePrices(currency="€")
    assert board.currency == "€"
