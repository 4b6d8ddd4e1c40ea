"""Killed at any moment, the store opens clean: what was committed is there, and nothing by half."""

import asyncio
import os
import random
import sqlite3
import time
from collections import Counter
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

from sqlalchemy import func, select

from integration.store.writer import BATCH, state, writing
from store.builders import KEY
from trimtab.store import Store
from trimtab.store.tables import history

KILLS = int(os.environ.get("TEST_KILLS", "3"))


def read_output(said: Connection) -> list[tuple[str, int]]:
    """All that a dead process still said."""
    heard = []
    try:
        while True:
            heard.append(said.recv())
    except EOFError:
        return heard


def kill_at_random(address: str, *, first: int, chance: random.Random) -> dict[str, int]:
    """The last batch and the last state that were committed before the end came."""
    with writing(address, first=first) as (process, said):
        assert said.recv() == "opening"
        heard = [said.recv()]
        time.sleep(chance.uniform(0, 0.15))  # the moment has to be any
        process.kill()
        process.join()
        heard += read_output(said)
    return dict(heard)


async def batches(store: Store) -> Counter[int]:
    async with store._database.begin_read() as connection:
        counted = await connection.execute(
            select(history.c.timestamp, func.count()).group_by(history.c.timestamp)
        )
        return Counter({int(number): rows for number, rows in counted})


async def test_store_killed_during_a_write_opens_with_all_commits(address: str) -> None:
    chance = random.Random(7)
    promised: set[int] = set()
    unsaid: set[int] = set()  # may have been committed in the moment of death
    first = 0
    for _ in range(KILLS):
        committed = await asyncio.to_thread(kill_at_random, address, first=first, chance=chance)
        promised |= set(range(first, committed["history"] + 1))
        unsaid.add(committed["history"] + 1)
        if not address.startswith("postgresql"):
            assert_intact(Path(address))
        async with Store.open(address) as store:
            found = await batches(store)
            assert set(found.values()) == {BATCH}, "half a batch"
            assert promised <= set(found) <= promised | unsaid

            saved = await store.states.load(KEY)  # raises where it does not match its checksum
            assert saved or "state" not in committed
            if saved:
                assert saved.data == state(int(saved.timestamp))
                assert saved.timestamp >= committed.get("state", 0)
        first = max(unsaid) + 1


def assert_intact(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert not list(file.parent.glob("*damaged*"))


async def test_store_killed_during_creation_is_created_at_the_next_open(address: str) -> None:
    chance = random.Random(11)
    for _ in range(KILLS):
        with writing(address) as (process, said):
            assert said.recv() == "opening"
            await asyncio.to_thread(time.sleep, chance.uniform(0, 0.2))
            process.kill()
            process.join()
        async with Store.open(address) as store:
            assert set((await batches(store)).values()) <= {BATCH}
            async with store._database.begin_write() as connection:
                for table in (
                    "trimtab_history",
                    "trimtab_states",
                    "trimtab_effects",
                    "trimtab_events",
                    "trimtab_schema",
                ):
                    await connection.exec_driver_sql(f"DROP TABLE {table}")
