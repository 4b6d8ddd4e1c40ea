"""The history of changes: container, time, author and reason."""

import math

import msgspec
import pytest
from sqlalchemy import Connection, text

from store.builders import entry
from trimtab.store import HistoryRecord, RecordError, Store
from trimtab.store.schema import VERSION_TABLE


def unnumbered(entries: list[HistoryRecord]) -> list[HistoryRecord]:
    return [msgspec.structs.replace(found, id=0) for found in entries]


async def test_history_entry_reads_back_with_a_number(store: Store) -> None:
    done = entry(1.5, before={"requests": {"cpu": "1"}, "limits": {}}, after=None, why="größer 大きい 🚀")
    await store.history.append([done])
    (found,) = await store.history.find()
    assert found.id
    assert unnumbered([found]) == [done]
    assert await store.history.get(found.id) == found


async def test_history_returns_none_for_an_unknown_number(store: Store) -> None:
    assert await store.history.get(7) is None


@pytest.mark.parametrize("field", ["cluster", "namespace", "kind", "name", "container", "what"])
async def test_entries_are_found_by(store: Store, field: str) -> None:
    await store.history.append([entry(1), entry(2, **{field: "another"}), entry(3)])
    found = await store.history.find(**{field: "another"})  # type: ignore[arg-type]
    assert [each.timestamp for each in found] == [2]


async def test_entries_are_found_that_were_written_after_another_one(store: Store) -> None:
    await store.history.append([entry(3), entry(1), entry(2)])
    ids = {each.timestamp: each.id for each in await store.history.find()}
    assert [each.timestamp for each in await store.history.find(after_id=ids[3])] == [2, 1]
    assert await store.history.find(after_id=max(ids.values())) == []


async def test_entries_are_found_by_several_words(store: Store) -> None:
    said = ("applied", "recommended", "reverted", "applied")
    await store.history.append([entry(float(t), what=what) for t, what in enumerate(said)])
    found = await store.history.find(what=("applied", "reverted"), limit=2)
    assert [each.timestamp for each in found] == [3, 2]
    assert await store.history.find(what=()) == []


async def test_entries_are_found_by_workload_and_time_newest_first(store: Store) -> None:
    await store.history.append([entry(float(t), name=("cart", "till")[t % 2]) for t in range(10)])
    found = await store.history.find(
        cluster="prod", namespace="shop", kind="Deployment", name="cart", since=2, until=6
    )
    assert [each.timestamp for each in found] == [6, 4, 2]


async def test_history_of_the_same_time_lists_the_last_written_first(store: Store) -> None:
    await store.history.append([entry(1, why="first"), entry(1, why="second")])
    await store.history.append([entry(1, why="third")])
    assert [each.why for each in await store.history.find()] == ["third", "second", "first"]


async def test_pages_hold_every_entry_once(store: Store) -> None:
    await store.history.append([entry(float(t // 3), why=str(t)) for t in range(20)])
    seen: list[HistoryRecord] = []
    while page := await store.history.find(older_than=seen[-1] if seen else None, limit=6):
        seen += page
    assert [each.why for each in seen] == [str(t) for t in reversed(range(20))]


async def test_history_accepts_an_empty_batch(store: Store) -> None:
    await store.history.append([])
    assert await store.history.find() == []


async def test_history_stores_a_batch_whole_or_not_at_all(store: Store) -> None:
    batch = [entry(float(t)) for t in range(5000)]
    with pytest.raises(RecordError, match="unsupported"):
        await store.history.append([*batch, entry(1, after={"cpu": object()})])
    assert await store.history.find() == []
    await store.history.append(batch)
    assert len(await store.history.find(limit=10_000)) == 5000


@pytest.mark.parametrize("moment", [math.nan, math.inf])
async def test_history_rejects_an_invalid_time(store: Store, moment: float) -> None:
    with pytest.raises(RecordError, match=f"timestamp: {moment} is not a finite number of seconds"):
        await store.history.append([entry(moment)])


async def test_history_returns_none_for_an_impossible_number(store: Store) -> None:
    assert await store.history.get(2**63) is None


async def test_history_batch_accepts_bytes_that_are_no_text(store: Store) -> None:
    name = b"caf\xe9".decode(errors="surrogateescape")
    await store.history.append([entry(1, who=name)])
    (found,) = await store.history.find()
    assert found.who == "caf\ufffd"


async def test_words_from_outside_cannot_break_a_batch(store: Store) -> None:
    await store.history.append([entry(1, why="a plugin said \0 '; DROP TABLE trimtab_history; --")])
    (found,) = await store.history.find()
    assert found.why == "a plugin said \ufffd '; DROP TABLE trimtab_history; --"


async def test_history_stores_an_event_seen_by_two_replicas_once(address: str) -> None:
    kill = entry(1, what="killed", event_key="oom/uid-1/app/1")
    others = [entry(1, what="killed"), entry(1, what="killed", event_key="oom/uid-2/app/1")]
    async with Store.open(address) as one, Store.open(address) as two:
        await one.history.append([kill, *others])
        await two.history.append([entry(2), kill, msgspec.structs.replace(kill, cluster="another")])
        found = await one.history.find()
    keys = [(each.cluster, each.event_key) for each in found]
    assert keys.count(("prod", "oom/uid-1/app/1")) == 1
    assert len(found) == 5  # the others, the change, and the same event of another cluster


async def test_history_of_the_previous_schema_stays_readable_and_gets_keys(address: str) -> None:
    def go_back(connection: Connection) -> None:
        connection.execute(text("DROP INDEX trimtab_history_by_event"))
        connection.execute(text("ALTER TABLE trimtab_history DROP COLUMN event_key"))
        connection.execute(text("ALTER TABLE trimtab_history DROP COLUMN transition"))
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0002'"))

    async with Store.open(address) as store:
        await store.history.append([entry(1, why="of the previous version")])
        async with store._database.begin_write() as connection:
            await connection.run_sync(go_back)
    kill = entry(2, what="killed", event_key="oom/uid-1/app/2")
    for _ in range(2):
        async with Store.open(address) as store:
            await store.history.append([kill])
            assert [each.why for each in await store.history.find(until=1)] == ["of the previous version"]
            assert len(await store.history.find(what="killed")) == 1
