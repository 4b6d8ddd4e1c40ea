"""The built site of the documentation works without the Internet: a real browser draws its diagrams."""

import asyncio
import os
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness import UnavailableError
from harness.peers.browser import browser, observe_page

ROOT = Path(__file__).parents[3]
WITH_DIAGRAMS = [
    page.relative_to(ROOT / "docs").with_suffix("").as_posix()
    for page in sorted((ROOT / "docs").rglob("*.md"))
    if "\n```mermaid\n" in page.read_text()
]


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that the base class has
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=True,
        timeout=300,
    )
    return folder


def test_site_draws_its_diagrams_and_loads_nothing_from_elsewhere(site: Path) -> None:
    assert WITH_DIAGRAMS
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietHandler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        asyncio.run(_visit_pages(f"http://127.0.0.1:{server.server_port}"))
    except UnavailableError as why:
        pytest.skip(str(why))
    finally:
        server.shutdown()
        server.server_close()


async def _visit_pages(address: str) -> None:
    async with browser() as found, observe_page(found, address) as view:
        for page in WITH_DIAGRAMS:
            await view.visit(f"/{page}/")
            # The theme puts each drawing into a closed shadow root: its host has the height of the drawing.
            hosts = view.page.locator("div.mermaid")
            await hosts.first.wait_for()
            assert await hosts.count() == (ROOT / "docs" / f"{page}.md").read_text().count("\n```mermaid\n")
            for host in await hosts.all():
                box = await host.bounding_box()
                assert box
                assert box["height"] > 50, page
        assert not view.strangers
        assert not view.errors
