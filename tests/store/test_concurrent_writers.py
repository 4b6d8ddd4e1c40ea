"""Several tasks and several processes at one store, and tasks that give up."""

import asyncio
from contextlib import suppress
from pathlib import Path

from sqlalchemy import select

from store.builders import KEY, entry
from trimtab.store import Retention, RetentionLimit, Store
from trimtab.store.database import to_row
from trimtab.store.tables import history


async def test_store_accepts_concurrent_writers(store: Store) -> None:
    async def write(number: int) -> None:
        for t in range(5):
            await store.history.append([entry(t, name=str(number))] * 20)
            await store.states.save(KEY, b"%d" % number, timestamp=t)

    await asyncio.gather(*map(write, range(20)))
    assert len(await store.history.find(limit=10_000)) == 20 * 5 * 20
    found = await store.states.load(KEY)
    assert found
    assert found.version == 100


async def test_store_writer_does_not_block_readers(store: Store) -> None:
    await store.history.append([entry(1)])
    async with store._database.begin_write() as connection:
        await store._database._backend.insert(connection, history, [to_row(entry(2))] * 10)
        async with asyncio.timeout(10):
            pages = await asyncio.gather(*(store.history.find() for _ in range(20)))
        assert {len(page) for page in pages} == {1}  # what is not committed is not seen
    assert len(await store.history.find()) == 11


async def test_store_reader_does_not_block_writers(store: Store) -> None:
    async with store._database.begin_read() as connection:
        await connection.execute(select(history))
        async with asyncio.timeout(10):
            await store.history.append([entry(1)])
    assert len(await store.history.find()) == 1


async def test_waiting_writers_leave_connections_to_readers(store: Store) -> None:
    async with store._database.begin_write():
        waiting = [asyncio.create_task(store.history.append([entry(t)])) for t in range(50)]
        for _ in range(100):  # until each waits, for its turn or for the database
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await store.history.find()
    await asyncio.gather(*waiting)
    assert len(await store.history.find()) == 50


async def test_store_serializes_two_transactions_that_read_before_they_write(
    address: str, tmp_path: Path
) -> None:
    async def archive(name: str) -> list[bytes]:
        async with Store.open(tmp_path / name) as store:
            await store.history.append([entry(t, name=name) for t in range(2100)])
            return [line async for line in store.export_lines()]

    async with Store.open(address) as left, Store.open(address) as right:
        archives = [await archive(name) for name in ("left", "right")]
        await asyncio.gather(left.import_lines(archives[0]), right.import_lines(archives[1]))
        assert len(await left.history.find(limit=10_000)) == 4200


async def test_store_rolls_back_a_cancelled_task(store: Store) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await store.history.append([entry(0)] * 2500)  # more than one statement takes
    full = loop.time() - begun
    for n in range(1, 16):  # at moments spread over the time that it takes
        with suppress(TimeoutError):
            async with asyncio.timeout(full * n / 12):
                await store.history.append([entry(n)] * 2500)
        assert len(await store.history.find(since=n, limit=10_000)) in {0, 2500}
        await store.prune(Retention(history=RetentionLimit(rows=0)), now=0)
