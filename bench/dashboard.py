"""The dashboard's response time, as the browser measures it: a search through ten thousand workloads while typing.

An interaction is from the key press to the frame in which the new rows are shown, which asks more than the browser's own
Interaction to Next Paint (good at 200 ms at most): that ends with the next frame, whatever is in it. Our limit is 100 ms
for either. Also what a first visit loads, and the CPU time of a refresh of the live backend with thousands of workloads.

    PYTHONPATH=tests python bench/dashboard.py
"""

import asyncio
import statistics
import time

from harness.peers.browser import browser, observe_page
from trimtab.api.optimizationpolicy import OptimizationPolicySpec, PolicyMode
from trimtab.lab.simulator.cluster_generator import generate_cluster
from trimtab.lab.simulator.simulation import Simulation
from trimtab.web.app import build_app
from trimtab.web.auth import LocalAccess
from trimtab.web.backends.live import LiveBackend
from trimtab.web.backends.snapshot import SnapshotBackend
from trimtab.web.server import serve_dashboard
from web.scene import scene

MANY = 10_000
LIVE = 5_000
LIMIT = 100.0
WORDS = ("ledger data", "web-004", "statefulset reverted", "api shop")

# From the event's own time, so that waiting in the browser's queue counts, to the frame after the one that draws the rows.
# Beside it what the browser itself notes of each event (Event Timing, of which Interaction to Next Paint is made).
MEASURE = """() => {
  window.took = [];
  window.noted = new Map();
  const pressed = new Map(), q = document.getElementById("q");
  q.addEventListener("input", event => { pressed.set(q.value, event.timeStamp); });
  new MutationObserver(() => {
    const at = pressed.get(new URLSearchParams(location.search).get("q"));
    requestAnimationFrame(() => requestAnimationFrame(() => { if (at) window.took.push(performance.now() - at); }));
  }).observe(document.getElementById("rows"), { childList: true });
  new PerformanceObserver(list => {
    for (const each of list.getEntries())
      if (each.interactionId) noted.set(each.interactionId, Math.max(each.duration, noted.get(each.interactionId) ?? 0));
  }).observe({ type: "event", durationThreshold: 16 });
}"""


async def measure_refresh() -> None:
    """Measure the CPU time in which all rows are built from the views of a simulated operator."""
    policy = OptimizationPolicySpec(mode=PolicyMode.RECOMMEND)
    world = generate_cluster(workloads=LIVE, days=1.0, seed=1)
    async with Simulation(world, policies={"p": policy}, seed=1) as simulation:
        await simulation.run(3 * simulation.step)
        board = LiveBackend(lambda: simulation.controllers.views, name="bench", every=0.0)
        await board.refresh()
        took = []
        for _ in range(5):
            began = time.process_time()
            await board.refresh()
            took.append(1000 * (time.process_time() - began))
    print(f"refresh                {statistics.median(took):6.0f} ms CPU for {LIVE:,} workloads")


async def main() -> None:
    await measure_refresh()
    board = SnapshotBackend(scene(MANY))
    async with (
        serve_dashboard(build_app(board, LocalAccess()), "127.0.0.1:0") as url,
        browser() as found,
        observe_page(found, url) as opened,
    ):
        page = opened.page
        await opened.visit("/")
        await page.wait_for_function("document.documentElement.dataset.charts > 1")
        raw, sent = await page.evaluate(
            "['decodedBodySize', 'transferSize'].map(name => performance.getEntries().reduce((sum, e) => sum + (e[name] || 0), 0))"
        )
        await opened.visit("/workloads")
        await page.evaluate(MEASURE)
        for words in WORDS:
            await page.locator("#q").fill("")
            await page.wait_for_timeout(200)
            await page.locator("#q").press_sequentially(words, delay=120)
            await page.wait_for_timeout(300)
        took = sorted(await page.evaluate("window.took"))
        noted = sorted(await page.evaluate("[...noted.values()]"))
    p95 = took[int(0.95 * len(took))]
    print(f"first load             {raw / 1000:6.0f} kB, {sent / 1000:.0f} kB as sent (limit 300 kB)")
    print(f"keys pressed           {len(took):6d} over {MANY:,} workloads")
    print(f"to the next paint      {_spread(noted)} (of the {len(noted)} that took 16 ms or more)")
    print(f"to the new rows        {_spread(took)}")
    print(f"p95 / limit of {LIMIT:.0f} ms  {p95 / LIMIT:6.2f}")


def _spread(took: list[float]) -> str:
    if not took:
        return "none"
    return f"{statistics.median(took):6.0f} ms median, {took[int(0.95 * len(took))]:.0f} p95, {took[-1]:.0f} slowest"


if __name__ == "__main__":
    asyncio.run(main())
