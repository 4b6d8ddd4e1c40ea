"""The effect learner: effects are learned, stored, and learned without a store too."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from trimtab.api.kpiprofile import KPIType
from trimtab.intents.objective import Goal, Objective
from trimtab.intents.state import ContainerSize, PodState, TargetState
from trimtab.operator.config.intents import IntentSettings
from trimtab.operator.intents.effect_learner import EffectLearner
from trimtab.store import PlannerEvent, Store, UnavailableError

GOAL = Goal(intent="shop/web", objectives=(Objective(name="p99", value=0.1, kind=KPIType.LATENCY),))
SETTINGS = IntentSettings()


def state(cpu: float, latency: float) -> TargetState:
    size = ContainerSize(container="web", cpu_request=cpu, cpu_limit=cpu)
    return TargetState(objectives={"p99": latency}, replicas=2, sizes=(size,), load=20.0, cpu_used=0.5)


class BrokenStore:
    """A store that is unavailable."""

    def __getattr__(self, _: str) -> Any:
        return self

    async def find(self, **_: Any) -> Any:
        raise UnavailableError("the store is away")

    async def append(self, _: Any) -> Any:
        raise UnavailableError("the store is away")


async def expected_ratio(learner: EffectLearner) -> float:
    """Return the ratio of the predicted latencies with twice the CPU, after and before learning that CPU helps a lot."""
    await learner.restore(GOAL, now=0.0)

    def predicted_latency() -> float:
        now, then = state(0.5, 0.4), state(1.0, 0.4)
        (after,) = learner.get_effects(GOAL, now).predict(now, [then], group="vertical_scaling")
        return after.objectives["p99"] or 0.0

    before = predicted_latency()
    for number in range(24):
        cpu, latency = ((0.5, 0.4), (0.75, 0.1), (1.0, 0.02))[number % 3]
        await learner.record(GOAL, state(cpu, latency), None, now=100.0 * number)
    assert await learner.refit(GOAL, now=10_000.0)
    await learner.flush()
    return predicted_latency() / before


async def test_effect_learner_restores_learned_effects(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        assert await expected_ratio(EffectLearner(store, cluster="prod", settings=lambda: SETTINGS)) < 0.8
        assert len(await store.events.find(name=GOAL.intent)) == 24
        again = EffectLearner(store, cluster="prod", settings=lambda: SETTINGS)
        await again.restore(GOAL, now=10_000.0)
        assert (
            again.get_effects(GOAL, state(0.5, 0.4)).learned_models["p99"].encode().items()
            <= (await store.effects.find(cluster="prod", name=GOAL.intent))[0].data.items()
        )


async def test_effect_learner_learns_without_store() -> None:
    learner = EffectLearner(BrokenStore(), cluster="prod", settings=lambda: SETTINGS)  # type: ignore[arg-type]
    assert await expected_ratio(learner) < 0.8
    await learner.flush()


class LateStore:
    """A store that is unavailable at first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.there = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store if self.there else BrokenStore(), name)


async def test_effect_learner_retries_restore_before_saving(
    tmp_path: Path,
) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        await expected_ratio(EffectLearner(store, cluster="prod", settings=lambda: SETTINGS))
        kept = await store.effects.find(cluster="prod", name=GOAL.intent)
        late = LateStore(store)
        learner = EffectLearner(late, cluster="prod", settings=lambda: SETTINGS)  # type: ignore[arg-type]
        assert await learner.restore(GOAL, now=10_000.0) is None
        late.there = True
        await learner.record(GOAL, state(0.5, 0.4), None, now=10_001.0)
        assert await learner.refit(GOAL, now=10_001.0)
        assert await store.effects.find(cluster="prod", name=GOAL.intent) == kept
        assert await learner.restore(GOAL, now=10_100.0) is not None
        assert (
            learner.get_effects(GOAL, state(0.5, 0.4)).learned_models["p99"].encode().items()
            <= kept[0].data.items()
        )
        assert await learner.refit(GOAL, now=20_000.0)
        assert learner.get_effects(GOAL, state(0.5, 0.4)).learned_models["p99"].encode()["samples"] == 25


async def test_effect_learner_does_not_record_unchanged_states_every_cycle(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        learner = EffectLearner(store, cluster="prod", settings=lambda: SETTINGS)
        for number in range(10):
            await learner.record(GOAL, state(0.5, 0.4 + number / 100), None, now=5.0 * number)
        await learner.flush()
        assert len(await store.events.find(name=GOAL.intent)) == 1


async def test_effect_learner_records_again_after_clock_was_ahead(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        learner = EffectLearner(store, cluster="prod", settings=lambda: SETTINGS)
        for now in (86_400.0, 60.0):
            await learner.record(GOAL, state(0.5, 0.4), None, now=now)
        await learner.flush()
        assert len(await store.events.find(name=GOAL.intent)) == 2


async def test_effect_learner_keeps_only_informative_states(tmp_path: Path) -> None:
    """Hundreds of intents of many pods would else be more than the operator may hold."""
    wanted = Goal(
        intent="shop/web",
        objectives=(*GOAL.objectives, Objective(name="up", value=0.99, kind=KPIType.AVAILABILITY)),
    )

    def observed_state(minute: int) -> TargetState:
        pods = tuple(
            PodState(name=f"web-{each}", node=f"node-{each}", availability=0.5 + minute / 1000)
            for each in range(100)
        )
        found = state(0.5 + minute % 3, 0.4)
        return replace(found, objectives={**found.objectives, "up": 0.9}, pods=pods, replicas=100)

    async with Store.open(tmp_path / "trimtab.db") as store:
        learner = EffectLearner(store, cluster="prod", settings=lambda: SETTINGS)
        await learner.restore(wanted, now=0.0)
        tracemalloc.start()
        for minute in range(60):
            await learner.record(wanted, observed_state(minute), None, now=60.0 * minute)
            await learner.flush()
        taken = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, "*/sqlalchemy/*")])
        tracemalloc.stop()
        held = sum(each.size for each in taken.traces)  # under `make coverage`, SQLAlchemy keeps frames
        assert held < 60 * 100 * 50, "less than fifty bytes a pod a minute"
        again = EffectLearner(store, cluster="prod", settings=lambda: SETTINGS)
        await again.restore(wanted, now=3600.0)
        for each in (learner, again):
            assert await each.refit(wanted, now=3600.0)
            learned = each.get_effects(wanted, observed_state(60)).learned_models
            assert learned["p99"].encode()["samples"] == 60
            assert learned["up"].encode()["new"] == pytest.approx((100 * 0.559 + 20 * 0.99) / 120)


async def test_effect_learner_ignores_effects_of_another_target(tmp_path: Path) -> None:
    """An Intent that is pointed at another workload, or a workload that was replaced by another of the same name."""
    mine, other = replace(GOAL, target="Deployment/web 1"), replace(GOAL, target="Deployment/web 2")
    async with Store.open(tmp_path / "trimtab.db") as store:
        learner = EffectLearner(store, cluster="prod", settings=lambda: SETTINGS)
        await learner.restore(other, now=0.0)
        for minute in range(30):
            await learner.record(other, state(0.5 + minute % 3, 0.01), None, now=minute * 61.0)
        await learner.refit(other, now=1900.0)
        await learner.flush()
        unknown = (
            EffectLearner(store, cluster="prod", settings=lambda: SETTINGS)
            .get_effects(mine, state(0.5, 0.4))
            .learned_models["p99"]
            .encode()
        )
        again = EffectLearner(store, cluster="prod", settings=lambda: SETTINGS)
        for goal, knows in ((mine, False), (other, True)):
            await again.restore(goal, now=2000.0)
            await again.refit(goal, now=2000.0)
            found = again.get_effects(goal, state(0.5, 0.4)).learned_models["p99"].encode()
            assert (found != unknown) is knows


async def test_effect_learner_separates_clusters(tmp_path: Path) -> None:
    """Two clusters may share a store, and one may have far more events."""
    async with Store.open(tmp_path / "trimtab.db") as store:
        await expected_ratio(EffectLearner(store, cluster="prod", settings=lambda: SETTINGS))
        mine = await store.effects.find(cluster="prod", name=GOAL.intent)
        other = await store.events.find(name=GOAL.intent)
        for number in range(200):
            copies = [msgspec.structs.replace(each, cluster="other", timestamp=3e4 + number) for each in mine]
            await store.effects.append(copies)
            await store.events.append(
                [msgspec.structs.replace(each, cluster="other", timestamp=3e4 + number) for each in other]
            )
        again = EffectLearner(store, cluster="prod", settings=lambda: SETTINGS)
        await again.restore(GOAL, now=4e4)
        assert len(again._get_record(GOAL).recent) == 24
        kept = await store.effects.find(cluster="prod", name=GOAL.intent)
        assert kept == mine
        assert {each.cluster for each in kept} == {"prod"}


async def test_effect_learner_restores_events_of_the_day_after_a_quiet_night(tmp_path: Path) -> None:
    """`learningPeriod` holds, however many events there are."""
    async with Store.open(tmp_path / "trimtab.db") as store:
        learner = EffectLearner(store, cluster="prod", settings=lambda: SETTINGS)
        await learner.restore(GOAL, now=0.0)
        now = 0.0
        for minute in range(24 * 60):
            now += 61.0
            by_day = minute < 14 * 60
            cpu = (0.5, 1.0, 2.0, 4.0)[(minute // 30) % 4] if by_day else 0.5
            await learner.record(GOAL, state(cpu, 0.3 / cpu), None, now=now)
        await learner.flush()
        again = EffectLearner(store, cluster="prod", settings=lambda: SETTINGS)
        await again.restore(GOAL, now=now)
        for found in (learner, again):
            seen = {each.cpu for _, each in found._get_record(GOAL).recent}
            assert seen == {0.5, 1.0, 2.0, 4.0}
            assert len(found._get_record(GOAL).recent) <= 700


async def test_effect_learner_does_not_wait_for_frozen_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thawed = asyncio.Event()
    async with Store.open(tmp_path / "trimtab.db") as store:
        append = store.events.append

        async def frozen(records: Sequence[PlannerEvent]) -> None:
            await thawed.wait()
            await append(records)

        monkeypatch.setattr(store.events, "append", frozen)
        learner = EffectLearner(store, cluster="prod", settings=lambda: SETTINGS)
        writing = asyncio.create_task(learner.run())
        async with asyncio.timeout(60):
            for minute in range(20):
                await learner.record(GOAL, state(0.5, 0.4), None, now=61.0 * minute)
                await asyncio.sleep(0)
            thawed.set()
            await learner.flush()
        writing.cancel()
        assert len(await store.events.find(name=GOAL.intent)) == 20
