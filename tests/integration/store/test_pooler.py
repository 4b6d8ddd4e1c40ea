"""A store behind PgBouncer, where each transaction may go to another connection of the server."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from sqlalchemy import make_url, text

from harness.peers.pgbouncer import CONNECTIONS
from store.builders import KEY, entry
from trimtab.store import Retention, RetentionLimit, Store

KEPT_BY_THE_POOLER = ("application_name", "client_encoding", "DateStyle", "TimeZone")
"""The settings of a client that PgBouncer sets again on each connection that it lends."""


@pytest.fixture
def pooled(postgres: str, pooler_url: str) -> str:
    database = make_url(postgres).database
    return make_url(pooler_url).set(database=database).render_as_string(hide_password=False)


async def test_store_behind_a_pooler_repeats_its_statements_on_any_connection(pooled: str) -> None:
    async with Store.open(pooled) as store, Store.open(pooled) as other:
        for t in range(
            10
        ):  # more often than it takes psycopg to prepare a statement; it forgets them after a read
            await store.history.append([entry(t)])
            await store.states.save(KEY, b"learned", timestamp=t)
        async with AsyncExitStack() as stack:
            for _ in range(CONNECTIONS - 1):  # it lends the one that was used last first
                connection = await stack.enter_async_context(other._database.begin_read())
                await connection.execute(text("SELECT 1"))
            await store.history.append([entry(10)])
            await store.states.save(KEY, b"more", timestamp=10)
            assert len(await store.history.find()) == 11
        kept = await store.states.load(KEY)
        assert kept
        assert (kept.version, kept.data) == (11, b"more")


async def test_store_leaves_nothing_on_a_connection_of_a_pooler(pooled: str) -> None:
    """Neither what the next client would find, nor what it would itself miss."""
    async with Store.open(pooled) as store:
        await store.prune(Retention(history=RetentionLimit(rows=3)), now=10)
        for t in range(10):
            await store.history.append([entry(t)])
        for question in (
            "SELECT name FROM pg_prepared_statements",
            "SELECT pid::text FROM pg_locks WHERE locktype = 'advisory'",
            "SELECT pg_listening_channels()",
            f"SELECT name FROM pg_settings WHERE source = 'session' AND name NOT IN {KEPT_BY_THE_POOLER}",
            "SELECT relname FROM pg_class WHERE relpersistence = 't'",
        ):
            assert await store._database.fetch_rows(text(question)) == [], question


async def test_replicas_open_a_new_store_behind_a_pooler_at_once(pooled: str) -> None:
    async def open_and_write(number: int) -> None:
        async with Store.open(pooled) as store:
            await store.history.append([entry(number)])

    await asyncio.gather(*map(open_and_write, range(6)))
    async with Store.open(pooled) as store:
        assert len(await store.history.find()) == 6
