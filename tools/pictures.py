"""Take the pictures of the dashboard for the docs: `python -m tools.pictures [FOLDER [DAYS]]`.

They show the demo after its week, in both themes and on a phone. It is not a test, because every change of a page changes
its picture; look at each of them before you commit it.
"""

import asyncio
import io
import logging
import sys
from pathlib import Path

import structlog
from PIL import Image
from playwright.async_api import Browser

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))

from harness.peers.browser import browser, observe_page  # noqa: E402 - it is part of the tests
from trimtab.web.app import build_app  # noqa: E402
from trimtab.web.auth import LocalAccess  # noqa: E402
from trimtab.web.demo.runner import open_demo  # noqa: E402
from trimtab.web.server import serve_dashboard  # noqa: E402

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
COLOURS = 128
"""The colours of a picture: pages have few, and a palette makes a file a third of the size."""


async def take_all(folder: Path, *, days: float) -> None:
    async with open_demo(days=days, seed=1) as demo:
        await demo.run()
        async with (
            serve_dashboard(build_app(demo.backend, LocalAccess()), "127.0.0.1:0") as url,
            browser() as chromium,
        ):
            for name, (path, theme) in PICTURES.items():
                await _take(chromium, url + path, folder / f"dashboard-{name}.png", theme=theme)
            await _take(chromium, url, folder / "dashboard-phone.png", theme="light", width=390)


async def _take(chromium: Browser, url: str, path: Path, *, theme: str, width: int = 1280) -> None:
    async with observe_page(chromium, url, color_scheme=theme) as opened:
        await opened.page.set_viewport_size({"width": width, "height": 844})
        await opened.page.goto(url)
        if await opened.page.locator("figure[data-source]").count():
            await opened.page.wait_for_selector("html[data-charts]")
        picture = Image.open(io.BytesIO(await opened.page.screenshot()))
        picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/pictures"
    asyncio.run(take_all(target, days=float(sys.argv[2]) if len(sys.argv) > 2 else 7.0))
