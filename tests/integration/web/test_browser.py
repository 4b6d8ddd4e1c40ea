"""Every page in a real browser: what people see, do and measure, and that a page does nothing else."""

from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Route, expect

from harness.peers.browser import ObservedPage, observe_page
from trimtab.web.app import build_app
from trimtab.web.auth import LocalAccess
from trimtab.web.backends.snapshot import DashboardSnapshot, SnapshotBackend
from trimtab.web.model import Curve, CurveRole, NodeSummary, Overview, Plot
from trimtab.web.server import serve_dashboard
from web.scene import scene

pytestmark = pytest.mark.asyncio(loop_scope="module")

MANY = 10_000
SCENE = scene(MANY)
FIRST = SCENE.workloads[0]
DETAIL = f"/workloads/{FIRST.namespace}/{FIRST.kind}/{FIRST.name}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url() -> AsyncIterator[str]:
    async with serve_dashboard(build_app(SnapshotBackend(SCENE), LocalAccess()), "127.0.0.1:0") as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def window(browser: Browser, url: str) -> AsyncIterator[ObservedPage]:
    """A page shared by tests that do not depend on its state: a new one takes the browser a second."""
    async with observe_page(browser, url) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def clean_page(window: ObservedPage) -> AsyncIterator[ObservedPage]:
    """The shared page, checked for errors at the end."""
    window.errors.clear()
    window.strangers.clear()
    yield window
    assert window.errors == []
    assert window.strangers == []


@pytest_asyncio.fixture(loop_scope="module")
async def fresh(browser: Browser, url: str) -> AsyncIterator[ObservedPage]:
    """A page of somebody who was never here, and nothing goes wrong on it either."""
    async with observe_page(browser, url) as found:
        yield found
        assert found.errors == []
        assert found.strangers == []


@pytest.mark.parametrize(
    ("path", "heading", "charts"),
    [
        ("/", "Overview", 2),
        ("/workloads", "Workloads", 0),
        (DETAIL, FIRST.name, 2),
        ("/intents", "Intents", 2),
        ("/nodes", "Nodes", 0),
        ("/history", "History", 0),
    ],
    ids=["overview", "workloads", "workload", "intents", "nodes", "history"],
)
async def test_overview_shows_charts_and_live_updates(
    clean_page: ObservedPage, path: str, heading: str, charts: int
) -> None:
    await clean_page.visit(path)
    page = clean_page.page
    await expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    await expect(page.locator("#live")).to_have_text("live")
    await expect(page.locator(".uplot")).to_have_count(charts)
    await expect(page.locator("a[aria-current=page]")).to_have_count(1)


async def test_chart_without_data_draws_no_axes(
    browser: Browser,
) -> None:
    nothing = Overview(at=0.0, cpu=Plot(unit="cores"), memory=Plot(unit="bytes"))
    board = SnapshotBackend(DashboardSnapshot(name="new", overview=nothing))
    async with (
        serve_dashboard(build_app(board, LocalAccess()), "127.0.0.1:0") as url,
        observe_page(browser, url) as found,
    ):
        await found.visit("/")
        await expect(found.page.get_by_text("No data yet.")).to_have_count(2)
        await expect(found.page.locator(".uplot")).to_have_count(0)
        board._snapshot = SCENE
        await found.page.evaluate("charts.load()")
        await expect(found.page.locator(".uplot")).to_have_count(2)
        await expect(found.page.get_by_text("No data yet.")).to_have_count(0)
        board._snapshot = DashboardSnapshot(name="new", overview=nothing)
        await found.visit("/workloads")
        await expect(found.page.get_by_text("The cluster has no workloads yet.")).to_be_visible()
        assert found.errors == []


async def test_one_outlier_does_not_flatten_a_chart(browser: Browser) -> None:
    seconds = tuple(0.1 + 0.001 * place for place in range(200))
    latency = Plot(
        unit="seconds",
        times=tuple(1e9 + 60 * place for place in range(201)),
        curves=(Curve(role=CurveRole.USED, name="p99", values=(*seconds, 43.0)),),
    )
    board = SnapshotBackend(
        DashboardSnapshot(name="slow", overview=Overview(at=0.0, cpu=latency, memory=Plot(unit="bytes")))
    )
    async with (
        serve_dashboard(build_app(board, LocalAccess()), "127.0.0.1:0") as url,
        observe_page(browser, url) as found,
    ):
        await found.visit("/")
        note = found.page.locator("figure[data-plot=cpu] .mark-note")
        await expect(note).to_have_text("One value is above the chart; the highest is 43 seconds.")
        assert await found.page.evaluate("charts.ends()") == [pytest.approx(0.294 * 3 * 1.06, rel=0.02)]
        assert found.errors == []


async def test_charts_say_that_they_load(clean_page: ObservedPage) -> None:
    page = clean_page.page
    await page.route("**/plots/overview", lambda route: None)
    try:
        await page.goto(f"{clean_page.url}/")
        await expect(page.locator("figure[data-plot=cpu] .mark-note")).to_have_text("Loading…")
    finally:
        await page.unroute("**/plots/overview")


async def test_search_filters_ten_thousand_workloads_while_typing(clean_page: ObservedPage) -> None:
    await clean_page.visit("/workloads")
    page = clean_page.page
    await expect(page.locator("#count")).to_have_text("10,000")
    await page.get_by_role("searchbox").press_sequentially("ledger data")
    found = sum(row.name.startswith("ledger") and row.namespace == "data" for row in SCENE.workloads)
    await expect(page.locator("#count")).to_have_text(f"{found:,}")
    await expect(page).to_have_url(f"{clean_page.url}/workloads?q=ledger+data&sort=-saving&page=1")


async def test_workloads_table_sorts_and_paginates(clean_page: ObservedPage) -> None:
    await clean_page.visit("/workloads")
    page = clean_page.page
    await page.get_by_role("button", name="Monthly cost").click()
    dearest = min(SCENE.workloads, key=lambda row: (-row.cost, row.namespace, row.name))
    await expect(page.locator("a.row").first).to_have_text(dearest.name)
    await expect(page.locator("th[aria-sort=descending]")).to_contain_text("Monthly cost")
    await page.get_by_role("button", name="Next").click()
    await expect(page.locator(".pager")).to_contain_text("51\u2013100 of 10,000")
    await page.get_by_label("State").select_option("Reverted")
    await expect(page.locator(".pager")).to_contain_text("1\u201350 of")


async def test_chart_zooms_by_mouse_and_keyboard(clean_page: ObservedPage) -> None:
    await clean_page.visit(DETAIL)
    page = clean_page.page
    await expect(page.locator(".uplot")).to_have_count(2)
    labels = page.locator(".u-legend").first
    await expect(labels).to_contain_text("recommended")
    await page.get_by_role("button", name="1 day").click()
    await expect(page.get_by_role("button", name="1 day")).to_have_attribute("aria-pressed", "true")
    await page.locator(".canvas").first.focus()
    await page.keyboard.press("+")
    await page.keyboard.press("0")


async def test_keyboard_shortcuts_reach_every_page(clean_page: ObservedPage) -> None:
    await clean_page.visit("/")
    page = clean_page.page
    await page.keyboard.press("Tab")
    await expect(page.locator(":focus")).to_have_text("Skip to the content")
    await page.keyboard.type("gw")  # in one go: they have a second and a half
    await expect(page.get_by_role("heading", level=1)).to_have_text("Workloads")
    await page.wait_for_load_state("load")  # before that no handler receives the keys
    await page.keyboard.press("j")
    await expect(page.locator(":focus")).to_have_class("row")
    await page.keyboard.press("/")
    await expect(page.locator(":focus")).to_have_id("q")
    await page.keyboard.press("Escape")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_be_visible()


async def test_theme_choice_is_kept(fresh: ObservedPage) -> None:
    await fresh.visit("/")
    page = fresh.page
    await page.get_by_role("button", name="Light or dark").click()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await page.reload()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")


async def test_pages_fit_a_phone(browser: Browser, url: str) -> None:
    async with observe_page(browser, url) as found:
        await found.page.set_viewport_size({"width": 360, "height": 740})
        for path in ("/", "/workloads", DETAIL, "/intents", "/costs", "/nodes", "/history"):
            await found.visit(path)
            wide = await found.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 360, path
            last = (
                await found.page.get_by_role("navigation", name="Pages")
                .get_by_role("link")
                .last.bounding_box()
            )
            assert last, path
            assert last["x"] + last["width"] <= 360, path
        # The longest name that a container may have has no place to break at.
        await found.page.evaluate(
            "document.querySelector('.history td[data-label=Workload]').append('x'.repeat(63))"
        )
        assert await found.page.evaluate("document.documentElement.scrollWidth") <= 360


async def test_first_load_is_small(fresh: ObservedPage) -> None:
    await fresh.visit("/")
    await expect(fresh.page.locator(".uplot")).to_have_count(2)
    sizes = await fresh.page.evaluate(
        "performance.getEntries().filter(e => e.decodedBodySize).map(e => e.decodedBodySize)"
    )
    assert sum(sizes) <= 300_000, "bytes, before they are compressed"


async def test_controls_have_names_and_tables_have_captions(clean_page: ObservedPage) -> None:
    for path in ("/", "/workloads", DETAIL, "/intents", "/costs", "/nodes", "/history"):
        await clean_page.visit(path)
        nameless = await clean_page.page.evaluate(NAMELESS)
        assert nameless == [], path


NAMELESS = """[...document.querySelectorAll("button, a[href], input:not([type=hidden]), select, table:not(.u-legend), [role=img]")]
  .filter(e => e.matches("table") ? !e.caption : e.matches("input, select") ? !e.labels.length : !(e.textContent.trim() || e.getAttribute("aria-label")))
  .map(e => e.outerHTML.slice(0, 120))"""


async def test_live_updates_resume_after_a_proxy_error(browser: Browser, url: str) -> None:
    async with observe_page(browser, url) as found:
        page, live = found.page, found.page.locator("#live")
        await page.route("**/changes", lambda route: route.fulfill(status=503))
        await found.visit("/nodes")
        await expect(live).to_have_text("not connected")
        await page.unroute("**/changes")
        async with page.expect_request("**/parts/nodes?*"):  # what was missed meanwhile
            await expect(live).to_have_text("live")


async def test_changes_between_page_and_stream_are_shown(browser: Browser) -> None:
    board = SnapshotBackend(SCENE)
    async with (
        serve_dashboard(build_app(board, LocalAccess()), "127.0.0.1:0") as url,
        observe_page(browser, url) as found,
    ):

        async def late(route: Route) -> None:
            board.version += 1
            await route.continue_()

        await found.page.route("**/changes", late, times=1)
        async with found.page.expect_request("**/parts/nodes?*"):
            await found.visit("/nodes")
        assert found.errors == []


async def test_nodes_page_shows_five_thousand_nodes(browser: Browser) -> None:
    nodes = tuple(
        NodeSummary(name=f"node-{number:04d}", cpu=5000.0, cpu_requested=number, memory=1.0, pods=1)
        for number in range(5000)
    )
    board = SnapshotBackend(msgspec.structs.replace(SCENE, nodes=nodes))
    async with (
        serve_dashboard(build_app(board, LocalAccess()), "127.0.0.1:0") as url,
        observe_page(browser, url) as found,
    ):
        await found.visit("/nodes")
        page = found.page
        await expect(page.locator("#count")).to_have_text("5,000")
        await expect(page.locator("a.row").first).to_have_text("node-4999")
        heat_map = page.locator("svg.heat")
        box = await heat_map.bounding_box()
        assert box
        assert box["height"] < 450
        # The square of the last row is at the end of the map.
        await heat_map.click(position={"x": box["width"] - 4, "y": box["height"] - 4})
        await expect(page.locator("a.row:focus")).to_have_text("node-0000")
        await page.locator("a.row:focus").press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("node-0000")
        await expect(page.locator("a[aria-current=page]")).to_have_text("Nodes")
        assert found.errors == []


async def test_hidden_tab_closes_its_stream(fresh: ObservedPage) -> None:
    page = fresh.page
    await fresh.visit("/nodes")
    await expect(page.locator("#live")).to_have_text("live")
    hide = """hidden => {
        Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    async with page.expect_event("requestfailed", lambda request: request.url.endswith("/changes")):
        await page.evaluate(hide, True)
    async with page.expect_request("**/parts/nodes?*"), page.expect_request("**/changes"):
        await page.evaluate(hide, False)
    await expect(page.locator("#live")).to_have_text("live")
