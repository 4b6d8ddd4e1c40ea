"""The pictures of the dashboard in the docs, taken anew: `PYTHONPATH=tests python -m web.pictures docs/pictures`.

They show the demo after its week, in both themes and on a phone. Not a test: pictures change with every change of it.
"""

import asyncio
import logging
import sys
from pathlib import Path

import structlog
from playwright.async_api import Browser

from harness.peers.browser import browser, watched
from trimtab.web.app import build_app
from trimtab.web.auth import LocalAccess
from trimtab.web.demo.runner import open_demo
from trimtab.web.server import serve_dashboard

PICTURES = {
    "overview": ("/", "light"),
    "dark": ("/", "dark"),
    "workloads": ("/workloads", "light"),
    "workload": ("/workloads/shop/Deployment/storefront", "light"),
    "reverted": ("/workloads/shop/Deployment/checkout", "light"),
    "intents": ("/intents", "light"),
    "nodes": ("/nodes", "light"),
    "history": ("/history", "light"),
}


async def main(folder: Path, *, days: float) -> None:
    async with open_demo(days=days, seed=1) as playing:
        await playing.run()
        async with (
            serve_dashboard(build_app(playing.backend, LocalAccess()), "127.0.0.1:0") as url,
            browser() as found,
        ):
            for name, (path, theme) in PICTURES.items():
                await _take(found, url + path, folder / f"dashboard-{name}.png", theme=theme)
            await _take(found, url, folder / "dashboard-phone.png", theme="light", width=390)


async def _take(on: Browser, url: str, path: Path, *, theme: str, width: int = 1280) -> None:
    async with watched(on, url, color_scheme=theme) as opened:
        await opened.page.set_viewport_size({"width": width, "height": 844})
        await opened.page.goto(url)
        if await opened.page.locator("figure[data-source]").count():
            await opened.page.wait_for_selector("html[data-charts]")
        await opened.page.screenshot(path=path)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    asyncio.run(main(Path(sys.argv[1]), days=float(sys.argv[2]) if len(sys.argv) > 2 else 7.0))
