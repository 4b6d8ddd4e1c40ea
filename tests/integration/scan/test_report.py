"""The HTML report of a scan in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import UnavailableError
from harness.peers.browser import browser
from scan.scans import container, scan_result, workload_finding
from trimtab.kube.kinds.pods import Resources
from trimtab.scan.render.html import render_page

WIDTH = 1200
NAMES = (
    "payment-gateway-fraud-detection-worker",
    "recommendation-engine-batch-feature-extractor-v2",
    "x" * 50,
)
BROKEN = """cells => cells.flatMap(cell => {
  const text = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT).nextNode();
  return [...text.data.matchAll(/[^-/\\s]+/g)].filter(word => {
    const range = document.createRange();
    range.setStart(text, word.index); range.setEnd(text, word.index + word[0].length);
    return range.getClientRects().length > 1;
  }).map(word => word[0]);
})"""
"""The words of names that are on two lines."""


async def test_report_fits_1200_pixels_and_breaks_names_between_words(tmp_path: Path) -> None:
    now, then = Resources(4000, None, 8 << 30, None), Resources(350, None, 1 << 30, None)
    found = [
        workload_finding(
            name,
            container("application-server", pods=300, throttled=0.5, current=now, recommended=then),
            container("istio-proxy-sidecar-container", pods=300, current=now, recommended=then),
            pods=300,
        )
        for name in NAMES
    ]
    page = tmp_path / "scan.html"
    page.write_text(render_page([scan_result(*found)]))
    try:
        async with browser() as chromium:
            tab = await chromium.new_page(viewport={"width": WIDTH, "height": 900})
            await tab.goto(page.as_uri())
            assert await tab.evaluate("document.documentElement.scrollWidth") <= WIDTH
            broken = await tab.eval_on_selector_all(".names td:first-child, .names td:nth-child(2)", BROKEN)
    except UnavailableError as why:
        pytest.skip(str(why))
    assert set(broken) == {"x" * 50}
