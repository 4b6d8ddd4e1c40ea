"""Several tasks and several processes at one store, and tasks that give up."""

import asyncio
from contextlib import ExitStack

from integration.store.writer import BATCH, writing
from store.builders import KEY, entry
from trimtab.store import Retention, RetentionLimit, Store


async def test_store_serves_a_reader_beside_two_writing_processes(address: str) -> None:
    with ExitStack() as stack:
        processes = [
            stack.enter_context(writing(address, writer=name, batches=2))[0] for name in ("left", "right")
        ]
        async with Store.open(address) as store:
            while any(process.is_alive() for process in processes):
                await store.history.find(limit=10)
        assert [process.exitcode for process in processes] == [0, 0]
    async with Store.open(address) as store:
        for name in ("left", "right"):
            assert len(await store.history.find(name=name, limit=100 * BATCH)) == 2 * BATCH
        found = await store.states.load(KEY)
        assert found
        assert found.version == 4


async def test_pruning_goes_on_beside_writing(store: Store) -> None:
    async def write() -> None:
        for t in range(40):
            await store.history.append([entry(t)] * 50)

    writing = asyncio.create_task(write())
    while not writing.done():
        await store.prune(Retention(history=RetentionLimit(rows=100)), now=0)
    await writing
    await store.prune(Retention(history=RetentionLimit(rows=100)), now=0)
    assert {found.timestamp for found in await store.history.find()} == {38, 39}
