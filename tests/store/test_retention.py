"""Retention removes entries beyond the maximum age or number, but keeps those of people."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from store.builders import KEY, effect, entry, event
from trimtab.store import PruneResult, Retention, RetentionLimit, StateKey, Store, retention
from trimtab.store.tables import history

NOTHING = PruneResult(states=0, effects=0, events=0, history=0)


def all_alike(keep: RetentionLimit) -> Retention:
    return Retention(states=keep, effects=keep, events=keep, history=keep)


async def fill(store: Store, *, moments: int) -> None:
    for t in range(moments):
        await store.states.save(StateKey("prod", "trimtab", str(t)), b"", timestamp=t)
    await store.effects.append([effect(t) for t in range(moments)])
    await store.events.append([event(t) for t in range(moments)])
    await store.history.append([entry(t) for t in range(moments)])


async def moments(store: Store) -> list[list[float]]:
    return [
        sorted(note.timestamp for note in await store.states.list_summaries()),
        sorted(found.timestamp for found in await store.effects.find(cluster="prod", name="default/intent")),
        sorted(found.timestamp for found in await store.events.find()),
        sorted(found.timestamp for found in await store.history.find()),
    ]


async def test_retention_removes_old_rows_of_each_table(store: Store) -> None:
    await fill(store, moments=10)
    assert await store.prune(all_alike(RetentionLimit(age=3)), now=10) == PruneResult(
        states=7, effects=7, events=7, history=7
    )
    assert await moments(store) == [[7, 8, 9]] * 4


async def test_retention_removes_the_oldest_rows_beyond_the_limit(store: Store) -> None:
    await fill(store, moments=10)
    assert await store.prune(all_alike(RetentionLimit(rows=4)), now=0) == PruneResult(
        states=6, effects=6, events=6, history=6
    )
    assert await moments(store) == [[6, 7, 8, 9]] * 4


async def test_retention_applies_both_bounds(store: Store) -> None:
    await fill(store, moments=10)
    await store.prune(all_alike(RetentionLimit(age=8, rows=3)), now=10)
    assert await moments(store) == [[7, 8, 9]] * 4


async def test_retention_without_bounds_removes_nothing(store: Store) -> None:
    await fill(store, moments=3)
    assert await store.prune(all_alike(RetentionLimit()), now=1e12) == NOTHING


async def test_retention_keeps_a_week_by_default(store: Store) -> None:
    await fill(store, moments=3)
    assert await store.prune(Retention(), now=7 * 86400) == NOTHING


async def test_retention_keeps_and_does_not_count_static_effects(store: Store) -> None:
    await store.effects.append([effect(0, static=True), *(effect(t) for t in range(1, 6))])
    await store.prune(all_alike(RetentionLimit(age=1000, rows=2)), now=1000)
    assert [e.timestamp for e in await store.effects.find(cluster="prod", name="default/intent")] == [5, 4, 0]
    await store.prune(all_alike(RetentionLimit(age=1)), now=1000)
    assert [e.timestamp for e in await store.effects.find(cluster="prod", name="default/intent")] == [0]


async def test_retention_removes_more_than_one_batch(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_DELETE_BATCH", 3)
    await fill(store, moments=10)
    assert (await store.prune(all_alike(RetentionLimit(age=1)), now=10)).history == 9
    assert await moments(store) == [[9]] * 4


async def test_prune_counts_the_rows_of_each_cluster_for_itself(store: Store) -> None:
    """A cluster with many events loses its oldest ones; a quiet cluster keeps its old events."""
    await fill(store, moments=3)  # of prod
    await store.history.append([entry(t, cluster="loud") for t in range(100, 120)])
    await store.events.append([event(t, cluster="loud") for t in range(100, 120)])
    await store.effects.append([effect(t, cluster="loud") for t in range(100, 120)])
    assert await store.prune(all_alike(RetentionLimit(rows=5)), now=200) == PruneResult(
        states=0, effects=15, events=15, history=15
    )
    quiet, loud = [0, 1, 2], [115, 116, 117, 118, 119]
    assert await moments(store) == [quiet, quiet, quiet + loud, quiet + loud]
    found = await store.effects.find(cluster="loud", name="default/intent")
    assert sorted(each.timestamp for each in found) == loud


async def test_retention_counts_the_age_of_a_state_from_its_last_save(store: Store) -> None:
    await store.states.save(KEY, b"", timestamp=0)
    await store.states.save(KEY, b"", timestamp=9)
    assert await store.prune(all_alike(RetentionLimit(age=3)), now=10) == NOTHING


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    times=st.lists(st.integers(0, 9), max_size=12),
    age=st.none() | st.integers(0, 10),
    rows=st.none() | st.integers(0, 10),
)
async def test_retention_matches_a_reference_implementation(
    store: Store, times: list[int], age: int | None, rows: int | None
) -> None:
    async with store._database.begin_write() as connection:
        await connection.execute(delete(history))
    await store.history.append([entry(t, why=str(n)) for n, t in enumerate(times)])
    await store.prune(all_alike(RetentionLimit(age=age, rows=rows)), now=9)

    young = [(t, n) for n, t in enumerate(times) if age is None or t >= 9 - age]
    expected = sorted(young, reverse=True)[:rows]
    assert [(e.timestamp, int(e.why)) for e in await store.history.find()] == expected
