"""Records of the planner in the store: effect models and events, found by cluster, name and time."""

import math

from store.builders import effect, event
from trimtab.store import Store

WHOSE = {
    "cluster": "prod",
    "name": "default/intent",
    "group": "vertical_scaling",
    "profile_name": "default/p99latency",
}


async def test_effect_reads_back_as_written(store: Store) -> None:
    model = effect(
        1.5, data={"popt": [[100, 0.2, 50]], "model": None, "trainingFeatures": ["cpus"]}, static=True
    )
    await store.effects.append([model])
    assert await store.effects.find(cluster="prod", name="default/intent") == [model]


async def test_effects_list_all_models_of_a_name_newest_first(store: Store) -> None:
    models = [effect(float(n)) for n in range(5)]
    await store.effects.append(models)
    assert await store.effects.find(cluster="prod", name="default/intent", limit=3) == models[:1:-1]


async def test_effects_are_found_by_cluster_or_in_all_clusters(store: Store) -> None:
    given, other = effect(1, cluster="", static=True), effect(2, cluster="other")
    await store.effects.append([given, other])
    assert await store.effects.find(cluster="prod", name="default/intent") == [given]


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
