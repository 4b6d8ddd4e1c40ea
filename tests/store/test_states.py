"""States of strategies: restored bit for bit, or rejected."""

import asyncio
import os

import pytest
from sqlalchemy import update

from store.builders import KEY
from trimtab.store import DamagedStateError, StateKey, StateSummary, Store
from trimtab.store.tables import states


async def test_state_reads_back_bit_for_bit(store: Store) -> None:
    learned = bytes(range(256)) * 7
    await store.states.save(KEY, learned, timestamp=12.5)
    found = await store.states.load(KEY)
    assert found
    assert (found.key, found.data, found.timestamp, found.version) == (KEY, learned, 12.5, 1)


async def test_state_that_was_never_saved_is_none(store: Store) -> None:
    assert await store.states.load(KEY) is None


async def test_state_save_replaces_the_former_and_counts_its_version(store: Store) -> None:
    versions = [await store.states.save(KEY, b"%d" % n, timestamp=float(n)) for n in range(3)]
    found = await store.states.load(KEY)
    assert found
    assert (versions, found.data, found.version) == ([1, 2, 3], b"2", 3)


async def test_state_is_separate_by_cluster_strategy_and_shard(store: Store) -> None:
    keys = [StateKey(c, s, n) for c in ("a", "b") for s in ("vpa", "krr") for n in ("", "1")]
    for number, key in enumerate(keys):
        await store.states.save(key, b"%d" % number, timestamp=0)
    for number, key in enumerate(keys):
        found = await store.states.load(key)
        assert found
        assert found.data == b"%d" % number


async def test_state_may_be_empty(store: Store) -> None:
    await store.states.save(KEY, b"", timestamp=0)
    found = await store.states.load(KEY)
    assert found
    assert found.data == b""


async def test_state_may_have_tens_of_megabytes(store: Store) -> None:
    learned = os.urandom(40 << 20)
    await store.states.save(KEY, learned, timestamp=0)
    found = await store.states.load(KEY)
    assert found
    assert found.data == learned


async def test_state_that_is_damaged_is_rejected_with_its_name(store: Store) -> None:
    await store.states.save(KEY, b"learned", timestamp=0)
    async with store._database.begin_write() as connection:
        await connection.execute(update(states).values(data=b"leArned"))
    with pytest.raises(
        DamagedStateError, match=r"'trimtab' learned of cluster 'prod', shard '0', does not match"
    ):
        await store.states.load(KEY)


async def test_state_that_is_damaged_can_be_replaced(store: Store) -> None:
    await store.states.save(KEY, b"learned", timestamp=0)
    async with store._database.begin_write() as connection:
        await connection.execute(update(states).values(sha256="?"))
    await store.states.save(KEY, b"anew", timestamp=1)
    found = await store.states.load(KEY)
    assert found
    assert found.data == b"anew"


async def test_state_that_is_deleted_is_gone(store: Store) -> None:
    await store.states.save(KEY, b"learned", timestamp=0)
    await store.states.forget(KEY)
    assert await store.states.load(KEY) is None


async def test_state_notes_list_states_without_their_bytes(store: Store) -> None:
    await store.states.save(StateKey("prod", "vpa"), b"12345", timestamp=3)
    await store.states.save(KEY, b"1", timestamp=4)
    assert await store.states.list_summaries() == [
        StateSummary(cluster="prod", strategy="trimtab", shard="0", version=1, timestamp=4, size=1),
        StateSummary(cluster="prod", strategy="vpa", shard="", version=1, timestamp=3, size=5),
    ]


async def test_state_readers_see_the_old_or_the_new_whole(store: Store) -> None:
    await store.states.save(KEY, b"0" * 100_000, timestamp=0)

    async def write() -> None:
        for number in range(1, 20):
            await store.states.save(KEY, b"%d" % (number % 10) * 100_000, timestamp=number)

    writing = asyncio.create_task(write())
    while not writing.done():
        found = await store.states.load(KEY)  # raises where it does not match its checksum
        assert found
        assert len(set(found.data)) == 1
    await writing
