"""Planner events are found by name and time."""

import math

from store.builders import event
from trimtab.store import Store


async def test_event_reads_back_as_written(store: Store) -> None:
    seen = event(1.25, annotations={"trimtab.io/hold": "yes"}, data={"node_0": {"load": [0.5, None]}})
    await store.events.append([seen])
    assert await store.events.find() == [seen]


async def test_event_distinguishes_no_plan_from_an_empty_plan(store: Store) -> None:
    await store.events.append([event(1, plan=None), event(2, plan=[])])
    assert [found.plan for found in await store.events.find()] == [[], None]


async def test_event_keeps_an_unknown_objective(store: Store) -> None:
    await store.events.append([event(1, current_objectives={"p99": None, "p50": math.nan})])
    (found,) = await store.events.find()
    assert found.current_objectives == {"p99": None, "p50": None}


async def test_events_are_found_by_name_newest_first(store: Store) -> None:
    await store.events.append([event(1, name="a"), event(2, name="b"), event(3, name="a")])
    assert [found.timestamp for found in await store.events.find(name="a")] == [3, 1]


async def test_events_are_found_by_time_both_ends_included(store: Store) -> None:
    await store.events.append([event(t) for t in range(10)])
    assert [found.timestamp for found in await store.events.find(since=3, until=5)] == [5, 4, 3]
    assert [found.timestamp for found in await store.events.find(since=8)] == [9, 8]
    assert [found.timestamp for found in await store.events.find(until=1)] == [1, 0]


async def test_events_limit_keeps_the_newest(store: Store) -> None:
    await store.events.append([event(t) for t in range(10)])
    assert [found.timestamp for found in await store.events.find(limit=2)] == [9, 8]


async def test_events_are_found_by_cluster(store: Store) -> None:
    await store.events.append([event(1), event(2, cluster="other")])
    assert [found.timestamp for found in await store.events.find(cluster="prod")] == [1]
