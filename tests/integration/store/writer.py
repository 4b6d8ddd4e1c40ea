"""Processes that write to a store and can be killed at any moment.

They are forked from a server that has everything imported, so that their life is spent writing.
"""

import asyncio
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from store.builders import KEY, entry
from trimtab.store import HistoryRecord, Store

BATCH = 2500
"""Rows a transaction: more than one statement takes."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["__main__", "trimtab.store", "aiosqlite", "alembic.command", "alembic.autogenerate", "psycopg"]
)


def batch(writer: str, number: int) -> list[HistoryRecord]:
    return [entry(number, name=writer, why=str(row)) for row in range(BATCH)]


def state(number: int) -> bytes:
    return number.to_bytes(8) * 50_000


async def _write(address: str, writer: str, first: int, batches: int, committed: Connection) -> None:
    committed.send("opening")
    async with Store.open(address) as store:
        for number in range(first, first + batches):
            await store.history.append(batch(writer, number))
            committed.send(("history", number))
            await store.states.save(KEY, state(number), timestamp=number)
            committed.send(("state", number))


def _main(address: str, writer: str, first: int, batches: int, committed: Connection) -> None:
    asyncio.run(_write(address, writer, first, batches, committed))


@contextmanager
def writing(
    address: str, *, writer: str = "writer", first: int = 0, batches: int = 1_000_000
) -> Iterator[tuple[BaseProcess, Connection]]:
    """A process at work, and the pipe on which it says what it has committed."""
    said, committed = _context.Pipe(duplex=False)
    process = _context.Process(target=_main, args=(address, writer, first, batches, committed))
    process.start()
    committed.close()
    try:
        yield process, said
    finally:
        process.kill()
        process.join()
        said.close()
