"""Take the pictures of the docs: `python -m tools.pictures dashboard|scan [FOLDER [DAYS]]`.

`dashboard` shows the demo after its week, `scan` the report of the sample workloads on a real control plane. It is not a
test, because every change of a page changes its picture; look at each of them before you commit it.
"""

import asyncio
import io
import logging
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog
from PIL import Image
from playwright.async_api import Browser

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))

from harness.cluster.cluster import Cluster  # noqa: E402 - it is part of the tests
from harness.cluster.namespaces import make_namespace  # noqa: E402
from harness.peers.browser import browser, observe_page  # noqa: E402
from harness.peers.prometheus import Recorded  # noqa: E402
from scan.scene import SampleWorkloads, ScannedCluster  # noqa: E402
from trimtab.cli import run  # noqa: E402
from trimtab.web.app import build_app  # noqa: E402
from trimtab.web.auth import LocalAccess  # noqa: E402
from trimtab.web.demo.runner import open_demo  # noqa: E402
from trimtab.web.server import serve_dashboard  # noqa: E402

PICTURES = {
    "overview": ("/", "light"),
    "reverted": ("/workloads/shop/Deployment/checkout", "light"),
    "intents": ("/intents", "light"),
    "nodes": ("/nodes", "light"),
}
COLOURS = 128
"""The colours of a picture: pages have few, and a palette makes a file a third of the size."""


async def take_dashboard(folder: Path, *, days: float) -> None:
    async with open_demo(days=days, seed=1) as demo:
        await demo.run()
        async with (
            serve_dashboard(build_app(demo.backend, LocalAccess()), "127.0.0.1:0") as url,
            browser() as chromium,
        ):
            for name, (path, theme) in PICTURES.items():
                await _take(chromium, url + path, folder / f"dashboard-{name}.png", theme=theme)


def write_report(path: Path) -> None:
    """Write the HTML report of a scan of the sample workloads."""
    with TemporaryDirectory() as made, Cluster.start(Path(made) / "cluster") as cluster:
        (Path(made) / "prometheus").mkdir()
        make_namespace(cluster, "shop")
        with (
            SampleWorkloads(cluster, "shop") as workloads,
            Recorded(Path(made) / "prometheus", workloads.recording()) as prometheus,
        ):
            options = ScannedCluster(cluster, "shop", prometheus.url).options
            run(["scan", "-n", "shop", "-o", "html", "--output-file", str(path), *options])


async def take_report(report: Path, folder: Path) -> None:
    async with browser() as chromium:
        await _take(chromium, report.as_uri(), folder / "scan.png", theme="light", width=1100, height=1420)


async def _take(
    chromium: Browser, url: str, path: Path, *, theme: str, width: int = 1280, height: int = 844
) -> None:
    async with observe_page(chromium, url, color_scheme=theme) as opened:
        await opened.page.set_viewport_size({"width": width, "height": height})
        await opened.page.goto(url)
        if await opened.page.locator("figure[data-source]").count():
            await opened.page.wait_for_selector("html[data-charts]")
        picture = Image.open(io.BytesIO(await opened.page.screenshot()))
        # The default method would give the small squares of a legend other colours.
        few = picture.convert("RGB").quantize(
            COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
        few.save(path, optimize=True)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs/pictures"
    match sys.argv[1:2]:
        case ["dashboard"]:
            asyncio.run(take_dashboard(target, days=float(sys.argv[3]) if len(sys.argv) > 3 else 7.0))
        case ["scan"]:
            with TemporaryDirectory() as made:
                write_report(Path(made) / "scan.html")
                asyncio.run(take_report(Path(made) / "scan.html", target))
        case _:
            sys.exit(__doc__)
