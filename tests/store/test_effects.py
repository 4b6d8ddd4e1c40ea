"""The store returns the newest effect models that are still valid."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from store.builders import effect
from trimtab.store import Effect, Store
from trimtab.store.tables import effects

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
    assert await store.effects.find_newest(**WHOSE, now=2, look_back=1) == model


async def test_effects_return_the_newest_model(store: Store) -> None:
    await store.effects.append(
        [effect(2, data={"fit": 2}), effect(3, data={"fit": 3}), effect(1, data={"fit": 1})]
    )
    newest = await store.effects.find_newest(**WHOSE, now=3, look_back=10)
    assert newest
    assert newest.data == {"fit": 3}


async def test_effects_of_the_same_time_return_the_last_written(store: Store) -> None:
    await store.effects.append([effect(1, data={"fit": 1})])
    await store.effects.append([effect(1, data={"fit": 2})])
    newest = await store.effects.find_newest(**WHOSE, now=1, look_back=10)
    assert newest
    assert newest.data == {"fit": 2}


async def test_effects_ignore_a_model_older_than_the_look_back(store: Store) -> None:
    await store.effects.append([effect(100)])
    assert await store.effects.find_newest(**WHOSE, now=110, look_back=10) is None
    assert await store.effects.find_newest(**WHOSE, now=109, look_back=10)


async def test_effects_keep_a_static_model_for_ever(store: Store) -> None:
    await store.effects.append([effect(0, static=True)])
    assert await store.effects.find_newest(**WHOSE, now=1e9, look_back=10)


async def test_effects_are_separate_by_name_group_and_profile(store: Store) -> None:
    await store.effects.append(
        [effect(9, name="other"), effect(9, group="scaling"), effect(9, profile_name="p50")]
    )
    assert await store.effects.find_newest(**WHOSE, now=9, look_back=10) is None


async def test_effects_list_all_models_of_a_name_newest_first(store: Store) -> None:
    models = [effect(float(n)) for n in range(5)]
    await store.effects.append(models)
    assert await store.effects.find(cluster="prod", name="default/intent", limit=3) == models[:1:-1]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    models=st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=8),
    now=st.integers(0, 25),
    look_back=st.integers(1, 10),
)
async def test_effects_match_a_reference_implementation(
    store: Store, models: list[tuple[int, bool]], now: int, look_back: int
) -> None:
    async with store._database.begin_write() as connection:
        await connection.execute(delete(effects))
    written = [effect(t, static=s, data={"fit": n}) for n, (t, s) in enumerate(models)]
    await store.effects.append(written)

    usable: list[Effect] = [e for e in written if e.static or e.timestamp > now - look_back]
    expected = max(usable, key=lambda e: (e.timestamp, e.data["fit"]), default=None)
    assert await store.effects.find_newest(**WHOSE, now=now, look_back=look_back) == expected


async def test_effects_are_found_by_cluster_or_in_all_clusters(store: Store) -> None:
    given, other = effect(1, cluster="", static=True), effect(2, cluster="other")
    await store.effects.append([given, other])
    assert await store.effects.find(cluster="prod", name="default/intent") == [given]
    assert await store.effects.find_newest(**WHOSE, now=3, look_back=10) == given
