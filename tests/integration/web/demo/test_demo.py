"""The demo: a day and a half of it, with all that it is to show; and that a seed is a cluster."""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from harness.peers.browser import observe_page
from trimtab.web.app import build_app
from trimtab.web.auth import LocalAccess
from trimtab.web.demo.runner import DemoRunner, open_demo
from trimtab.web.server import serve_dashboard
from web.demo.test_demo import DAYS

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def played() -> AsyncIterator[DemoRunner]:
    async with open_demo(days=DAYS, seed=1) as found:
        await found.run()
        yield found


async def test_demo_viewer_applies_and_reverts_in_the_browser(played: DemoRunner, browser: Browser) -> None:
    async with (
        serve_dashboard(build_app(played.backend, LocalAccess()), "127.0.0.1:0") as url,
        observe_page(browser, url) as opened,
    ):
        page = opened.page
        await opened.visit("/workloads/payments/Deployment/api")
        request = page.locator("table.sizes td").nth(1)
        await expect(request).to_have_text(re.compile(r"^1 → \S+ next 500m$"))
        target = str((await request.inner_text()).split()[2])
        await expect(page.locator(".uplot")).to_have_count(2)
        form = page.locator("details.act[open]")
        await page.get_by_text("Hold…").click()
        await form.get_by_label("Why").press("Escape")
        await expect(form).to_have_count(0)
        await expect(page.locator(":focus")).to_have_text("Hold…")
        await page.get_by_text("Apply…").press("Enter")
        await expect(form).to_contain_text(
            "In Auto mode the change takes several steps; the next one is api: CPU 500m"
        )
        await form.get_by_label("Why").fill("looks right")
        await form.get_by_role("button").click()
        await expect(page.get_by_role("status").filter(has_text="until it is released")).to_be_visible()
        await played.advance(hours=3)
        await expect(page.locator(".title")).to_contain_text("held")
        await expect(request).to_contain_text(target)
        await expect(request).not_to_contain_text("1 →")
        await page.get_by_text("Revert…").click()
        await form.get_by_label("Why").fill("rather not")
        await form.get_by_role("button").click()
        await expect(page.get_by_role("status").filter(has_text="cpu 1,")).to_be_visible()
        await played.advance(hours=3)
        await expect(request).to_contain_text("1 →")
        await expect(page.locator("#more")).to_contain_text("rather not")
        assert opened.errors == []
        assert opened.strangers == []
