"""Simulations in one thread: work for threads is done at once, timers cost no time, and a standstill is an error."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from sqlalchemy import text

from trimtab.lab.faults.gate import ProcessGate
from trimtab.lab.faults.plan import FaultInjector, FaultPlan
from trimtab.lab.faults.single_thread import run_alone, use_one_thread
from trimtab.lab.faults.store_faults import FaultyDatabase, open_store
from trimtab.lab.faults.trace import RunTrace
from trimtab.store.store import select_backend


async def test_use_one_thread_does_the_work_of_threads_in_this_thread() -> None:
    use_one_thread()
    assert await asyncio.to_thread(threading.current_thread) is threading.current_thread()


async def test_use_one_thread_raises_the_errors_of_work() -> None:
    use_one_thread()
    with pytest.raises(ValueError, match="lots"):
        await asyncio.to_thread(int, "lots")


def test_run_alone_ends_long_timers_in_their_order() -> None:
    woken = []

    async def wait(seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append(seconds)

    async def run() -> None:
        await asyncio.gather(wait(1e6), wait(1e3), wait(1e7))

    run_alone(run())
    assert woken == [1e3, 1e6, 1e7]


def test_run_alone_reports_a_wait_that_never_ends() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="never happens"):
        run_alone(wait())


async def test_faulty_database_needs_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    use_one_thread()
    async with FaultyDatabase.open(select_backend(tmp_path / "store.db")) as database:
        assert (await database.fetch_rows(text("SELECT 1"))) == [(1,)]
        assert threading.active_count() == before


async def test_open_store_keeps_what_was_written(tmp_path: Path) -> None:
    use_one_thread()
    injector = FaultInjector(FaultPlan(), elapsed=lambda: 0.0, trace=RunTrace(lambda: 0.0))
    for _ in range(2):
        async with open_store(tmp_path / "store.db", injector, ProcessGate("operator-1")) as store:
            assert store is not None
