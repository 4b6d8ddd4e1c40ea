"""`trimtab demo`: a week of a made-up cluster in half a minute, in the browser or as text."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Literal

import structlog
from cyclopts import Parameter

from trimtab.cli._common.scan_options import render_text, show_progress, write_output
from trimtab.cli._common.seed import Seed
from trimtab.errors import TrimtabError
from trimtab.plural import pluralize
from trimtab.web.app import build_app
from trimtab.web.auth import LocalAccess, OneTimeLinks
from trimtab.web.backends.backend import DashboardBackend
from trimtab.web.backends.snapshot import SnapshotBackend, read_snapshot
from trimtab.web.demo.runner import open_demo
from trimtab.web.demo.summary import SummaryDocument, build_summary, render_summary
from trimtab.web.demo.warmup import compile_in_background
from trimtab.web.server import is_loopback, serve_dashboard

MAX_DAYS = 28.0


def demo(
    *,
    headless: bool = False,
    days: float = 7.0,
    seed: Seed = 1,
    snapshot: Path | None = None,
    address: str = "127.0.0.1:8090",
    output: Annotated[Literal["table", "json"], Parameter(name=["--output", "-o"])] = "table",
) -> None:
    """Show a simulated week of a cluster in half a minute, with the production operator and the dashboard.

    In the browser, at the printed address; it installs nothing and needs no cluster:

        trimtab demo

    The same figures without a browser, and a saved snapshot of a dashboard:

        trimtab demo --headless --days 7 --seed 1 --output json
        trimtab demo --snapshot trimtab-snapshot.json

    Parameters
    ----------
    headless
        Run the days without a dashboard, print a summary, and exit.
    days
        The simulated days that run at full speed.
    seed
        The seed of the generated cluster; the same seed gives the same run.
    snapshot
        Show this file, saved from a dashboard, read-only.
    address
        The address of the dashboard; only this machine can reach it.
    output
        The output of --headless: text with a chart, or json for programs.
    """
    if not 0 < days <= MAX_DAYS:
        raise TrimtabError(f"--days {days:g}: give more than 0 and at most {MAX_DAYS:g}")
    if not is_loopback(address):
        raise TrimtabError(
            f"--address {address}: the demo may only listen on this machine; give a loopback address, such as 127.0.0.1:8090"
        )
    # The dashboard shows the changes; a log line for each would hide its address.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with suppress(KeyboardInterrupt):
        if snapshot is not None:
            asyncio.run(_serve_snapshot(SnapshotBackend(read_snapshot(snapshot)), address))
        elif headless:
            with compile_in_background():
                found = asyncio.run(_run_headless(days=days, seed=seed))
            if output == "json":
                print(json.dumps(found, indent=2))
            else:
                write_output(
                    render_text(lambda width: render_summary(found, width=width), to_file=False), None
                )
        else:
            with compile_in_background():
                asyncio.run(_run_live(days=days, seed=seed, address=address))


async def _run_headless(*, days: float, seed: int) -> SummaryDocument:
    with show_progress("demo") as report:
        report("getting ready", 0.0)
        async with open_demo(days=days, seed=seed) as runner:
            await runner.run(lambda share: report(pluralize(days, "simulated day"), share))
            return await build_summary(runner.backend, days=days, seed=seed)


async def _run_live(*, days: float, seed: int, address: str) -> None:
    async with (
        open_demo(days=days, seed=seed) as runner,
        _serve(runner.backend, address) as links,
    ):
        print(
            f"Dashboard: {links()}\nSimulating {pluralize(days, 'day')} at full speed. Press Ctrl-C to stop.",
            flush=True,
        )
        await runner.warm_up()
        await runner.run()
        found = await build_summary(runner.backend, days=days, seed=seed)
        write_output(render_text(lambda width: render_summary(found, width=width), to_file=False), None)
        print(f"\nOpen again: {links()}\nPress Ctrl-C to stop.", flush=True)
        await runner.run_slowly()


async def _serve_snapshot(backend: DashboardBackend, address: str) -> None:
    async with _serve(backend, address) as links:
        print(f"Snapshot of {backend.name}: {links()}\nPress Ctrl-C to stop.", flush=True)
        await asyncio.Event().wait()


@asynccontextmanager
async def _serve(backend: DashboardBackend, address: str) -> AsyncIterator[Callable[[], str]]:
    """Serve the dashboard to whoever has a link of this terminal; yield a function that returns the current link."""
    links = OneTimeLinks()
    async with serve_dashboard(build_app(backend, LocalAccess(links=links)), address) as url:
        links.on_redeemed = lambda: print(f"For another browser: {links.build_url(url)}", flush=True)
        yield lambda: links.build_url(url)
