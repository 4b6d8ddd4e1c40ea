"""A source ingester learns every sample once, across outages of the source and restarts."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from harness.builders.records import workload
from trimtab.kube.kinds.nodes import NodeResources
from trimtab.operator.metrics import Metrics
from trimtab.recommender import cohort_store
from trimtab.recommender.cohort import StrategyCohort, StrategySpec
from trimtab.recommender.cohort_store import MAX_STRATEGY_COHORTS, TrackedContainer, state_key
from trimtab.recommender.oom_kills import ObservedSize, OomKill
from trimtab.recommender.recommender import DEFAULT_SOURCE, Recommender
from trimtab.recommender.source_ingester import IngestSchedule, SourceIngester
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.strategies.percentile import PercentileStrategy
from trimtab.sizing.strategy import STRATEGIES
from trimtab.store import StateKey, Store, StoreError
from trimtab.testing import Script, ScriptedSource, steady
from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.sampled import ContainerSample, PollingSettings, PollingSource
from trimtab.usage.source import Capabilities, UsageQuery
from trimtab.usage.usage import PodContainer

NOW = 1_800_000_000.0
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
PACE = IngestSchedule(backfill_period=2 * HOUR, backfill_read_period=HOUR, retention=DAY, save_interval=600.0)
EASY = StrategySpec.from_settings("percentile", {"min_samples": 1})
OLD, NEW = NOW - 30 * DAY, NOW - MINUTE


def container(name: str) -> WorkloadContainer:
    return WorkloadContainer("shop", "Deployment", name, "web")


def pod(name: str) -> PodContainer:
    return PodContainer("shop", f"{name}-7c9f8d6b5-x2x2x", "web")


def nobody(_: StrategySpec, error: Exception) -> None:
    """Fails here."""
    raise error


class Published(PollingSource[PollingSettings]):
    """A metrics-server: for each pod, a measurement up to a minute old."""

    name = "published"
    settings_type = PollingSettings

    def __init__(self, store: Store, *pods: PodContainer) -> None:
        self.now = NOW
        super().__init__(PollingSettings(), store=store, clock=lambda: self.now)
        self.pods = pods

    async def snapshot(self) -> list[ContainerSample]:
        measured = (self.now - 5) // MINUTE * MINUTE - 10
        return [ContainerSample(pod, measured, cpu=0.2, memory=3e8) for pod in self.pods]


class IngesterBed:
    """A cluster of deployments with a pod each, and who learns of them."""

    def __init__(self, store: Store, *names: str, script: Script | None = None, history: bool = True) -> None:
        self.store = store
        self.metrics = Metrics()
        self.source = ScriptedSource(script or steady(0.2, 3e8), *map(pod, names), history=history)
        self.wanted = {container(name): TrackedContainer(EASY, OLD) for name in names}
        self.recommender = self.restart()

    def restart(self) -> Recommender:
        self.recommender = Recommender(
            {DEFAULT_SOURCE: self.source}, self.store, cluster="c", schedule=PACE, metrics=self.metrics
        )
        return self.recommender

    @property
    def ingester(self) -> SourceIngester:
        return self.recommender.ingesters[DEFAULT_SOURCE]

    def add(self, name: str, *, created: float = OLD, sizing: StrategySpec = EASY) -> None:
        self.source.pods.append(pod(name))
        self.wanted[container(name)] = TrackedContainer(sizing, created)

    async def advance(self, now: float, *, machine: NodeResources | None = None) -> set[str]:
        """To this time; the names of those that are new."""
        names = {each.name for each in self.wanted}
        owners = PodOwnerIndex([workload(name, containers=({"name": "web"},)) for name in names])
        new = await self.recommender.ingest(
            now, tracked=self.wanted, owners=lambda: owners, running=set(self.wanted), largest_node=machine
        )
        return {each.name for each in new}

    def cpu(self, name: str, now: float) -> float:
        found = self.recommender.estimate(container(name), EASY, now=now, is_long_running=True)
        return found.proposal.cpu.target if found else math.nan

    def samples(self, name: str, now: float) -> int:
        found = self.recommender.estimate(container(name), EASY, now=now, is_long_running=True)
        return found.evidence.samples if found else 0

    def cohort(self, name: str) -> StrategyCohort:
        found = self.recommender.cohorts.find(container(name), EASY)
        assert found
        return found


async def test_ingester_reads_every_late_sample_of_a_polling_source(
    store: Store,
) -> None:
    bed = IngesterBed(store, "a")
    source = Published(store, pod("a"))
    bed.recommender = Recommender(
        {DEFAULT_SOURCE: source}, store, cluster="c", schedule=PACE, metrics=bed.metrics
    )
    for minute in range(30):
        for second in (6, 36):  # a cycle runs a tenth of a step after its end, twice a step
            source.now = NOW + minute * MINUTE + second
            await source.check()
        source.now = NOW + (minute + 1) * MINUTE + 6
        await bed.advance(source.now)
    found = bed.recommender.estimate(container("a"), EASY, now=source.now, is_long_running=True)
    assert found is not None
    assert found.evidence.samples >= 25
    assert found.evidence.coverage > 0.8


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store.open(tmp_path / "trimtab.db") as store:
        yield store


def steps(asked: Iterable[UsageQuery]) -> list[float]:
    """The times that were asked for, one by one."""
    return [ask.start + row * ask.step for ask in asked for row in range(ask.steps)]


@pytest.mark.parametrize(("samples", "reads"), [(1_200_000, 8), (100, 70), (1, 2304)])
async def test_few_containers_backfill_in_few_long_reads(store: Store, samples: int, reads: int) -> None:
    """Reads of an hour cost Prometheus 25 s of CPU for 1,000 containers, those of a day one."""
    bed = IngesterBed(store, "web", "api", "job")
    schedule = IngestSchedule(backfill_read_samples=samples)
    bed.recommender = Recommender(
        {DEFAULT_SOURCE: bed.source}, store, cluster="c", schedule=schedule, metrics=bed.metrics
    )
    await bed.advance(NOW)
    history = [query for query in bed.source.queries if query.step == schedule.backfill_step]
    assert len(history) == pytest.approx(reads, rel=0.15)
    assert max(query.steps for query in history) * len(bed.wanted) <= max(samples, len(bed.wanted))


async def test_ingester_backfills_in_parts_then_reads_the_present(
    store: Store,
) -> None:
    bed = IngesterBed(store, "web")
    await bed.advance(NOW)
    assert bed.cpu("web", NOW) == pytest.approx(240, rel=0.1)
    assert (
        max(ask.end - ask.start for ask in bed.source.queries)
        <= PACE.backfill_read_period + PACE.backfill_step
    )
    first = steps(bed.source.queries)
    assert first == sorted(set(first)), "every step once, in the order of time"
    assert first[0] <= NOW - PACE.backfill_period + PACE.backfill_step
    assert bed.source.queries[0].include_ooms
    bed.source.queries.clear()
    await bed.advance(NOW + MINUTE)
    assert steps(bed.source.queries) == [NOW + MINUTE]
    assert not any(ask.include_ooms for ask in bed.source.queries), "pod statuses report present kills"


async def test_backfilled_samples_stand_for_more_time(store: Store) -> None:
    bed = IngesterBed(store, "web")
    for now in (NOW, NOW + MINUTE, NOW + 2 * MINUTE):
        await bed.advance(now)
    found = bed.recommender.estimate(container("web"), EASY, now=now, is_long_running=False)
    assert found
    evidence = found.evidence
    assert evidence.run_seconds == pytest.approx(now - evidence.first_sample_at, abs=PACE.backfill_step)
    assert evidence.samples * MINUTE < evidence.run_seconds / 2
    again = bed.restart()
    await bed.advance(now + MINUTE)
    kept = again.estimate(container("web"), EASY, now=now, is_long_running=False)
    assert kept
    assert kept.evidence.run_seconds == evidence.run_seconds + MINUTE


async def test_ingester_drops_present_samples_above_node_capacity(store: Store) -> None:
    bed = IngesterBed(store, "web", history=False, script=steady(100.0, 1e14))
    machine = NodeResources(cpu=64_000, memory=1 << 38)
    await bed.advance(NOW, machine=machine)
    assert bed.samples("web", NOW) == 0
    bed.source.script = steady(64.0, 3e8)
    await bed.advance(NOW + MINUTE, machine=machine)
    assert bed.samples("web", NOW + MINUTE) == 1


async def test_ingester_keeps_backfilled_samples_of_removed_nodes(store: Store) -> None:
    """A node pool at zero or a reclaimed spot node: the samples of its containers are still valid."""
    large, small = NodeResources(cpu=64_000, memory=256 << 30), NodeResources(cpu=16_000, memory=64 << 30)

    def nightly(_: PodContainer, t: float) -> tuple[float, float]:
        return (30.0, 192.0 * 2**30) if t < NOW - HOUR else (0.1, 4.0 * 2**30)

    found = {}
    for machine in (large, small):
        bed = IngesterBed(store, "web", script=nightly)
        bed.recommender = Recommender(
            {DEFAULT_SOURCE: bed.source}, store, cluster=str(machine), schedule=PACE, metrics=bed.metrics
        )
        await bed.advance(NOW, machine=machine)
        found[machine] = bed.recommender.estimate(container("web"), EASY, now=NOW, is_long_running=True)
    assert found[small] == found[large]
    assert [each.evidence.memory_peak for each in found.values() if each] == [192 << 30] * 2


async def test_ingester_keeps_samples_of_a_node_removed_since(store: Store) -> None:
    bed = IngesterBed(store, "web", history=False, script=steady(30.0, 192.0 * 2**30))
    await bed.advance(NOW, machine=NodeResources(cpu=64_000, memory=256 << 30))
    await bed.advance(NOW + MINUTE, machine=NodeResources(cpu=16_000, memory=64 << 30))
    assert bed.samples("web", NOW + MINUTE) == 2


async def test_ingester_does_not_backfill_from_a_source_without_history(store: Store) -> None:
    bed = IngesterBed(store, "web", history=False)
    for minute in range(5):
        await bed.advance(NOW + minute * MINUTE)
    assert steps(bed.source.queries) == [NOW + minute * MINUTE for minute in range(5)]
    assert bed.samples("web", NOW + 4 * MINUTE) == 5


async def test_ingester_does_not_backfill_if_the_source_loses_its_history_capability(
    store: Store,
) -> None:
    bed = IngesterBed(store, "web")
    bed.source.detected = Capabilities(history=False)
    await bed.advance(NOW)
    assert steps(bed.source.queries) == [NOW]


async def test_ingester_catches_up_after_a_source_outage(
    store: Store,
) -> None:
    bed = IngesterBed(store, "web")
    await bed.advance(NOW)
    known, before = bed.cpu("web", NOW), bed.samples("web", NOW)
    bed.source.stop()
    for minute in range(1, 4):
        await bed.advance(NOW + minute * MINUTE)
        assert "does not answer" in bed.ingester.last_error
    assert (bed.cpu("web", NOW), bed.samples("web", NOW)) == (known, before)
    errors = bed.metrics.registry.get_sample_value
    assert (
        errors("trimtab_reconciliation_errors_total", {"policy": "", "error_type": "SourceUnavailable"}) == 3
    )
    bed.source.start()
    bed.source.queries.clear()
    await bed.advance(NOW + 4 * MINUTE)
    assert bed.ingester.last_error == ""
    assert steps(bed.source.queries) == [NOW + minute * MINUTE for minute in range(1, 5)]
    assert bed.samples("web", NOW + 4 * MINUTE) == before + 4


async def test_ingester_survives_unexpected_source_errors(store: Store) -> None:
    bed = IngesterBed(store, "web")
    bed.source.failure = ZeroDivisionError("oh")
    await bed.advance(NOW)
    assert bed.ingester.last_error == "scripted failed: ZeroDivisionError('oh')"
    bed.source.start()
    await bed.advance(NOW)
    assert math.isfinite(bed.cpu("web", NOW))


async def test_ingester_isolates_a_failing_strategy(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    of_theirs, observe = (
        StrategySpec.from_settings("percentile", {"min_samples": 2}),
        PercentileStrategy.observe,
    )

    def fail(self: PercentileStrategy, *samples: Any) -> None:
        if self.settings.min_samples == 2:
            raise ZeroDivisionError("a bug of theirs")
        observe(self, *samples)

    monkeypatch.setattr(PercentileStrategy, "observe", fail)
    bed = IngesterBed(store, history=False)
    bed.add("theirs", sizing=of_theirs)
    bed.add("web")
    for minute in range(3):
        await bed.advance(NOW + minute * MINUTE)
    assert bed.samples("web", NOW + 2 * MINUTE) == 3
    assert bed.ingester.last_error == ""
    failures = {"policy": "", "error_type": "ZeroDivisionError"}
    assert bed.metrics.registry.get_sample_value("trimtab_reconciliation_errors_total", failures) == 4


async def test_ingester_logs_strategy_failure_and_recovery_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = PercentileStrategy.observe

    def fail(self: PercentileStrategy, *samples: Any) -> None:
        raise ZeroDivisionError("a bug of theirs")

    bed = IngesterBed(store, "web", history=False)
    await bed.advance(NOW)
    with capture_logs() as lines:
        for minute in range(1, 9):
            monkeypatch.setattr(PercentileStrategy, "observe", works if minute in {3, 4, 7} else fail)
            await bed.advance(NOW + minute * MINUTE)
            await bed.advance(NOW + minute * MINUTE + 1)
    events = [line["event"] for line in lines if line["event"].startswith("recommender.strategy")]
    assert events == ["recommender.strategy_failed", "recommender.strategy_recovered"] * 2 + [
        "recommender.strategy_failed"
    ]


@pytest.mark.parametrize("action", ["__init__", "arrays", "load_arrays", "observe"])
async def test_ingester_saves_other_cohorts_when_a_strategy_fails(
    store: Store, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    of_theirs, works = (
        StrategySpec.from_settings("percentile", {"min_samples": 2}),
        getattr(PercentileStrategy, action),
    )

    def fail(self: PercentileStrategy, *given: Any) -> Any:
        settings = given[1] if action == "__init__" else self.settings
        if settings.min_samples == 2:
            raise ZeroDivisionError("a bug of theirs")
        return works(self, *given)

    bed = IngesterBed(store, history=False)
    bed.add("theirs", sizing=of_theirs)
    bed.add("web")
    await bed.advance(NOW)
    monkeypatch.setattr(PercentileStrategy, action, fail)
    for minute in range(1, 12):
        await bed.advance(NOW + minute * MINUTE)
    await bed.recommender.save(NOW + 12 * MINUTE)
    bed.restart()
    await bed.advance(NOW + 12 * MINUTE)
    bed.add("more", sizing=of_theirs, created=NEW)
    await bed.advance(NOW + 13 * MINUTE)
    assert bed.samples("web", NOW + 13 * MINUTE) == 14
    assert bed.ingester.last_error == ""


async def test_ingester_clears_estimates_of_a_failing_strategy(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = IngesterBed(store, "web")
    await bed.advance(NOW)
    assert math.isfinite(bed.cpu("web", NOW))

    def fail(*_: Any) -> None:
        raise ZeroDivisionError("a bug of theirs")

    with monkeypatch.context() as broken:
        broken.setattr(PercentileStrategy, "recommend", fail)
        await bed.advance(NOW + MINUTE)
    assert math.isnan(bed.cpu("web", NOW + MINUTE))
    await bed.advance(NOW + 2 * MINUTE)
    assert math.isfinite(bed.cpu("web", NOW + 2 * MINUTE))


async def test_ingester_ignores_implausible_samples(store: Store) -> None:
    bed = IngesterBed(store, "web", script=lambda _, t: (-1.0, math.inf) if t % 120 else (math.nan, 1e18))
    await bed.advance(NOW)
    assert math.isnan(bed.cpu("web", NOW))
    assert bed.samples("web", NOW) == 0


async def test_ingester_restores_estimates_and_reads_only_missed_samples(store: Store) -> None:
    bed = IngesterBed(store, "web", "api")
    await bed.advance(NOW)
    await bed.recommender.save(NOW)
    before = [bed.recommender.estimate(name, EASY, now=NOW, is_long_running=True) for name in bed.wanted]
    bed.restart()
    bed.source.stop()
    await bed.advance(NOW)
    after = [bed.recommender.estimate(name, EASY, now=NOW, is_long_running=True) for name in bed.wanted]
    assert after == before
    bed.source.start()
    bed.source.queries.clear()
    samples = bed.samples("web", NOW)
    await bed.advance(NOW + 2 * MINUTE)
    assert bed.samples("web", NOW + 2 * MINUTE) == samples + 2
    asked = steps(bed.source.queries)
    assert asked[-2:] == [NOW + MINUTE, NOW + 2 * MINUTE]
    assert asked[0] > NOW - PACE.max_lateness, "only recently sampled containers are looked up"


async def test_ingester_uses_coarser_steps_after_a_long_absence(store: Store) -> None:
    bed = IngesterBed(store, "web")
    await bed.advance(NOW)
    bed.source.queries.clear()
    await bed.advance(NOW + 6 * HOUR)
    times = steps(bed.source.queries)
    assert times == sorted(set(times))
    assert len(times) < 120, "not 360 single minutes"
    bed.source.queries.clear()
    await bed.advance(NOW + 30 * DAY)
    assert min(steps(bed.source.queries)) >= NOW + 30 * DAY - PACE.backfill_period - PACE.backfill_step


async def test_ingester_recovers_from_a_clock_that_was_ahead(store: Store) -> None:
    bed = IngesterBed(store, "a")
    for now in (NOW, NOW + 30 * DAY, NOW + MINUTE):
        await bed.advance(now)
    assert bed.cohort("a").ingested_until == NOW + MINUTE
    assert bed.samples("a", NOW + MINUTE) > 20, "its past was read again"


async def test_ingester_saves_after_the_clock_was_set_back(store: Store) -> None:
    bed = IngesterBed(store, "web")
    await bed.advance(NOW + DAY)
    await bed.advance(NOW)
    assert {note.timestamp for note in await store.states.list_summaries()} == {NOW}


async def test_ingester_gives_new_containers_with_history_their_own_cohort(store: Store) -> None:
    bed = IngesterBed(store, "web")
    assert await bed.advance(NOW) == {"web"}
    bed.add("api")
    bed.add("job", created=NEW)
    assert await bed.advance(NOW + MINUTE) == {"api", "job"}
    assert bed.cohort("api") is not bed.cohort("web")
    assert bed.samples("api", NOW + MINUTE) > 10, "it was shown its past"
    bed.add("tiny", created=NOW + MINUTE)
    await bed.advance(NOW + 2 * MINUTE)
    assert bed.cohort("tiny") is bed.cohort("api")
    await bed.recommender.save(NOW)
    bed.restart()
    await bed.advance(NOW + 2 * MINUTE)
    assert bed.cohort("api") is not bed.cohort("web")
    assert bed.cohort("tiny") is bed.cohort("api")


async def test_cohorts_are_merged_when_there_are_too_many(
    store: Store,
) -> None:
    bed = IngesterBed(store, "web")
    await bed.advance(NOW)
    for number in range(MAX_STRATEGY_COHORTS):
        await bed.recommender.save(NOW)
        bed.add(f"w{number}")
        await bed.advance(NOW + number * MINUTE)
    everybody = {id(bed.cohort(name.name)) for name in bed.wanted}
    assert len(everybody) == 1
    await bed.recommender.save(NOW)
    bed.restart()
    await bed.advance(NOW + MAX_STRATEGY_COHORTS * MINUTE)
    assert len({id(bed.cohort(name.name)) for name in bed.wanted}) == 1
    assert bed.samples("web", NOW) > 10


async def test_ingester_forgets_removed_containers_after_a_day(store: Store) -> None:
    bed = IngesterBed(store, "web", "api")
    await bed.advance(NOW)
    away = {container("api"): bed.wanted.pop(container("api"))}
    await bed.advance(NOW + MINUTE)
    await bed.advance(NOW + DAY)
    assert container("api") in bed.cohort("web")
    bed.wanted |= away
    await bed.advance(NOW + DAY + MINUTE)
    del bed.wanted[container("api")]
    await bed.advance(NOW + 2 * DAY)
    assert container("api") in bed.cohort("web"), "its absence started again"
    await bed.advance(NOW + 3 * DAY + 2 * MINUTE)
    assert bed.recommender.cohorts.find(container("api"), EASY) is None


async def test_cohort_store_drops_unused_strategy_specs(store: Store) -> None:
    """Otherwise every change of a policy's settings would be checked in each cycle, and saved."""
    found = cohort_store.CohortStore(
        store, cluster="c", min_backfill_age=HOUR, retention=DAY, on_failure=nobody
    )
    backfill = {DEFAULT_SOURCE: cohort_store.Backfill(NOW - HOUR, is_available=True)}
    for change in range(20):
        sizing = StrategySpec.from_settings("percentile", {"min_samples": 1 + change})
        now = NOW + change * 2 * DAY
        for moment in (now, now + DAY + HOUR):
            await found.assign(
                {container("web"): TrackedContainer(sizing, OLD)}, now=moment, backfill=backfill
            )
    assert [cohort.strategy_spec for cohort in found.iter_strategies()] == [sizing]


async def test_ingester_cancelled_while_learning_saves_a_consistent_state(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread goes on: what it learns from would be taken for learned, and never be read again."""
    works, learning, go_on = PercentileStrategy.observe, threading.Event(), threading.Event()

    def slowly(self: PercentileStrategy, *samples: Any) -> None:
        learning.set()
        go_on.wait(10)
        works(self, *samples)

    bed = IngesterBed(store, "web")
    await bed.advance(NOW)
    before = bed.samples("web", NOW)
    monkeypatch.setattr(PercentileStrategy, "observe", slowly)
    ingestion = asyncio.create_task(bed.advance(NOW + 4 * MINUTE))
    await asyncio.to_thread(learning.wait, 10)
    ingestion.cancel()
    saving = asyncio.create_task(bed.recommender.save(NOW + 4 * MINUTE))
    await asyncio.wait([saving], timeout=0.5)
    go_on.set()
    await asyncio.wait([ingestion, saving])
    assert ingestion.cancelled()
    bed.restart()
    await bed.advance(NOW + 5 * MINUTE)
    assert bed.samples("web", NOW + 5 * MINUTE) == before + 5


async def test_ingester_without_store_backfills_again(store: Store, tmp_path: Path) -> None:
    bed = IngesterBed(store, "web")
    with closing(sqlite3.connect(tmp_path / "trimtab.db")) as connection:
        connection.execute("ALTER TABLE trimtab_states RENAME COLUMN data TO away")
    await bed.advance(NOW)
    await bed.recommender.save(NOW)
    with pytest.raises(StoreError):
        await store.states.list_summaries()
    assert bed.ingester.last_error == ""
    assert math.isfinite(bed.cpu("web", NOW))


async def test_ingester_restores_state_after_a_store_outage_at_start(store: Store, tmp_path: Path) -> None:
    bed = IngesterBed(store, "web", history=False)
    for minute in range(30):
        await bed.advance(NOW + minute * MINUTE)
    await bed.recommender.save(NOW + 30 * MINUTE)
    bed.restart()
    with closing(sqlite3.connect(tmp_path / "trimtab.db")) as connection:
        connection.execute("ALTER TABLE trimtab_states RENAME COLUMN data TO away")
        await bed.advance(NOW + 30 * MINUTE)
        assert bed.samples("web", NOW + 30 * MINUTE) == 1, "it learns again"
        connection.execute("ALTER TABLE trimtab_states RENAME COLUMN away TO data")
    await bed.recommender.save(NOW + 31 * MINUTE)
    assert bed.samples("web", NOW + 31 * MINUTE) == 30, "and goes on from what was kept"
    bed.restart()
    await bed.advance(NOW + 31 * MINUTE)
    assert bed.samples("web", NOW + 31 * MINUTE) == 31


async def test_cohort_store_queries_an_unavailable_store_once_per_cycle(store: Store, tmp_path: Path) -> None:
    """A timeout may take half a minute, in which no workload is reconciled."""
    found = cohort_store.CohortStore(
        store, cluster="c", min_backfill_age=HOUR, retention=DAY, on_failure=nobody
    )
    wanted = {
        container(name): TrackedContainer(
            StrategySpec.from_settings("percentile", {"min_samples": 1 + number}), OLD
        )
        for number, name in enumerate("abc")
    }
    with closing(sqlite3.connect(tmp_path / "trimtab.db")) as connection, capture_logs() as logs:
        connection.execute("ALTER TABLE trimtab_states RENAME COLUMN data TO away")
        await found.assign(
            wanted, now=NOW, backfill={DEFAULT_SOURCE: cohort_store.Backfill(NOW - HOUR, is_available=True)}
        )
        await found.save(NOW, lock=asyncio.Lock())
        connection.execute("ALTER TABLE trimtab_states RENAME COLUMN away TO data")
    assert [each["event"] for each in logs] == ["recommender.restore_failed"] * 2
    assert len(list(found.iter_strategies())) == 3
    await found.save(NOW, lock=asyncio.Lock())
    assert len(await store.states.list_summaries()) == 4, "of three strategies, and the evidence"


@settings(max_examples=100)
@given(st.data())
def test_cohort_rejects_damaged_state(data: st.DataObject) -> None:
    cohort = StrategyCohort(EASY, until=NOW)
    cohort.add([container("web")])
    state = bytearray(cohort.state())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(state) - 1))
        state[place] = data.draw(st.integers(0, 255))
    damaged = bytes(state[: data.draw(st.integers(0, len(state)))])
    other = StrategyCohort(EASY, until=0.0)
    try:
        other.restore(damaged)
    except ValueError:
        assert other.ingested_until == 0.0
        assert len(other) == 0


@pytest.mark.parametrize("damaged", ["percentile", "evidence"])
async def test_ingester_backfills_when_stored_state_is_damaged(store: Store, damaged: str) -> None:
    bed = IngesterBed(store, "web")
    await bed.advance(NOW)
    await bed.recommender.save(NOW)
    (note,) = [note for note in await store.states.list_summaries() if note.strategy == damaged]
    key = StateKey(note.cluster, note.strategy, note.shard)
    await store.states.save(key, b"no cohort's", timestamp=NOW)
    bed.restart()
    await bed.advance(NOW + MINUTE)
    assert bed.samples("web", NOW + MINUTE) > 10
    assert math.isfinite(bed.cpu("web", NOW + MINUTE))


async def test_ingester_replaces_an_inconsistent_stored_state(store: Store, tmp_path: Path) -> None:
    bed = IngesterBed(store, "web", history=False)
    await bed.advance(NOW)
    await bed.recommender.save(NOW)
    with closing(sqlite3.connect(tmp_path / "trimtab.db")) as connection:
        connection.execute("UPDATE trimtab_states SET data = x'00'")
        connection.commit()
    bed.restart()
    await bed.advance(NOW + MINUTE)
    await bed.recommender.save(NOW + MINUTE)
    bed.restart()
    await bed.advance(NOW + 2 * MINUTE)
    assert bed.samples("web", NOW + 2 * MINUTE) == 2


async def test_ingester_reports_each_oom_kill_once(store: Store) -> None:
    bed = IngesterBed(store, "web")
    await bed.advance(NOW)
    kill = OomKill(container("web"), NOW + 5, 5e8, 5e8)
    other = OomKill(container("nobody"), NOW + 5, 5e8, 5e8)
    assert bed.recommender.cohorts.observe_ooms([kill, kill, other]) == {kill}
    assert bed.recommender.cohorts.observe_ooms([kill]) == set()
    found = bed.recommender.estimate(container("web"), EASY, now=NOW + 6, is_long_running=True)
    assert found
    assert [each.memory for each in found.evidence.kills] == [500_000_000]


async def test_latest_usage_is_that_of_the_busiest_replica(store: Store) -> None:
    def script(of: PodContainer, t: float) -> tuple[float, float]:
        return (0.3, 1e8) if of.pod.endswith("x2x2x") else (0.1, t / 10)

    bed = IngesterBed(store, "web", script=script)
    bed.source.pods.append(PodContainer("shop", "web-7c9f8d6b5-z5z5z", "web"))
    assert bed.recommender.latest_usage(container("web"), EASY) is None
    await bed.advance(NOW)
    used = bed.recommender.latest_usage(container("web"), EASY)
    assert used == (0.3, NOW / 10)
    bed.add("api", created=NEW)
    async with bed.recommender.lock:
        seen = bed.recommender.cohorts.find_evidence(container("web"), DEFAULT_SOURCE)
        assert seen
        seen.add([container("api")])
    assert bed.recommender.latest_usage(container("web"), EASY) == pytest.approx(
        (math.nan, math.nan), nan_ok=True
    )


async def test_estimate_waits_until_a_cohort_has_ingested(store: Store) -> None:
    bed = IngesterBed(store, "web")
    async with bed.recommender.lock:
        advancing = asyncio.create_task(bed.advance(NOW))
        await asyncio.sleep(0)
        assert bed.source.queries == []
    await advancing
    assert bed.source.queries


async def test_recent_proposals_survive_backfill_and_restart(store: Store) -> None:
    def busy_an_hour_ago(_: PodContainer, t: float) -> tuple[float, float]:
        return (0.2 if t > NOW - HOUR else 0.8), 3e8

    bed = IngesterBed(store, "web", script=busy_an_hour_ago)
    await bed.advance(NOW)
    before = bed.recommender.estimate(container("web"), EASY, now=NOW, is_long_running=True)
    assert before
    this_hour, *earlier = before.proposal.cpu.recent
    assert this_hour >= before.proposal.cpu.target > 0
    assert max(earlier) > 0, "of the past that was read"
    await bed.recommender.save(NOW)
    bed.restart()
    await bed.advance(NOW + MINUTE)
    after = bed.recommender.estimate(container("web"), EASY, now=NOW + MINUTE, is_long_running=True)
    assert after
    assert after.proposal.cpu.recent == before.proposal.cpu.recent


@pytest.mark.parametrize(("kept", "keeps"), [(86400.0, True), (0.0, False)])
def test_proposal_states_whether_it_covers_stabilization(kept: float, keeps: bool) -> None:  # noqa: FBT001
    cohort = StrategyCohort(StrategySpec.from_settings("trimtab", {"stabilization": kept}), until=NOW)
    cohort.add([container("web")])
    found = cohort.get_proposal(container("web"), now=NOW)
    assert (found.cpu.covers_stabilization, found.memory.covers_stabilization) == (keeps, False)


def test_cohort_facts_list_strategy_settings_without_policy_settings() -> None:
    for strategy_settings, facts in (
        ({"stabilization": 86400.0}, []),
        ({"stabilization": 86400.0, "cpu_risk": 0.01}, ["cpu_risk 0.01"]),
    ):
        cohort = StrategyCohort(StrategySpec.from_settings("trimtab", strategy_settings), until=NOW)
        cohort.add([container("web")])
        found = cohort.get_proposal(container("web"), now=NOW)
        assert [fact.detail for fact in found.facts] == facts


async def test_large_fleets_use_bounded_cohorts_that_survive_restart(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cohort_store, "MAX_COHORT_SIZE", 3)
    bed = IngesterBed(store, *(f"w{number}" for number in range(7)))
    await bed.advance(NOW)
    bed.add("tiny", created=NEW)
    bed.add("mini", created=NEW)
    bed.add("wee", created=NEW)
    await bed.advance(NOW + MINUTE)
    together = Counter(id(bed.cohort(name.name)) for name in bed.wanted)
    assert sorted(together.values()) == [1, 3, 3, 3]
    await bed.recommender.save(NOW + MINUTE)
    asked = len(bed.source.queries)
    bed.restart()
    await bed.advance(NOW + 2 * MINUTE)
    assert len({id(bed.cohort(name.name)) for name in bed.wanted}) == 4
    assert min(steps(bed.source.queries[asked:])) > NOW - PACE.max_lateness


OTHER = StrategySpec.from_settings("percentile", {"min_samples": 1, "quantile": 0.5})
VPA = StrategySpec.from_settings("vpa", {})


@pytest.mark.parametrize("history", [True, False], ids=["a source with a past", "one without"])
@pytest.mark.parametrize("other", [OTHER, VPA], ids=["other settings", "another strategy"])
async def test_ingester_keeps_evidence_across_a_policy_change(
    store: Store,
    history: bool,  # noqa: FBT001
    other: StrategySpec,
) -> None:
    """A policy of higher weight took over, and kills, peaks and history started from zero."""
    bed = IngesterBed(store, "web", history=history)
    for minute in range(30):
        await bed.advance(NOW + minute * MINUTE)
    now = NOW + 29 * MINUTE
    bed.recommender.cohorts.observe_sizes([ObservedSize(container("web"), 5e8, 9e8)], now=now)
    kill = OomKill(container("web"), now - 10, 5e8, 4e8)
    assert bed.recommender.cohorts.observe_ooms([kill]) == {kill}
    before = bed.recommender.estimate(container("web"), EASY, now=now, is_long_running=True)
    assert before
    bed.wanted[container("web")] = TrackedContainer(other, OLD)
    await bed.advance(now)
    after = bed.recommender.estimate(container("web"), other, now=now, is_long_running=True)
    assert after
    assert after.evidence == before.evidence
    assert bed.recommender.cohorts.observe_ooms([kill]) == set(), "it is known"
    await bed.recommender.save(now)
    bed.restart()
    await bed.advance(now)
    again = bed.recommender.estimate(container("web"), other, now=now, is_long_running=True)
    assert again
    assert again.evidence == before.evidence


async def test_ingester_backfills_a_strategy_that_takes_over(
    store: Store,
) -> None:
    bed = IngesterBed(store, "web")
    await bed.advance(NOW)
    bed.wanted[container("web")] = TrackedContainer(OTHER, OLD)
    await bed.advance(NOW + MINUTE)
    found = bed.recommender.estimate(container("web"), OTHER, now=NOW + MINUTE, is_long_running=True)
    assert found
    assert found.proposal.cpu.target == pytest.approx(240, rel=0.1)


UNCHANGED: dict[bool, list[Evidence]] = {}
"""The evidence without changes of policy, with and without history."""


@settings(max_examples=50)
@given(st.lists(st.sampled_from([EASY, OTHER, VPA]), min_size=8, max_size=8), st.booleans())
def test_evidence_is_independent_of_policy_changes(
    sizings: list[StrategySpec],
    history: bool,  # noqa: FBT001
) -> None:
    def script(_: PodContainer, t: float) -> tuple[float, float]:
        return 0.1 + t % 420 / 1000, 1e8 * (1 + t // 60 % 5)

    async def evidence(order: list[StrategySpec]) -> list[Evidence]:
        found = []
        with tempfile.TemporaryDirectory() as folder:
            async with Store.open(Path(folder) / "trimtab.db") as store:
                bed = IngesterBed(store, "web", script=script, history=history)
                for minute, sizing in enumerate(order):
                    now = NOW + minute * MINUTE
                    bed.wanted[container("web")] = TrackedContainer(sizing, OLD)
                    await bed.advance(now)
                    if minute == 3:
                        bed.recommender.cohorts.observe_ooms([OomKill(container("web"), now, 5e8, 5e8)])
                    learned = bed.recommender.estimate(
                        container("web"), sizing, now=now, is_long_running=True
                    )
                    assert learned
                    found.append(learned.evidence)
        return found

    if history not in UNCHANGED:
        UNCHANGED[history] = asyncio.run(evidence([EASY] * len(sizings)))
    assert asyncio.run(evidence(sizings)) == UNCHANGED[history]


async def test_ingester_restores_evidence_of_an_earlier_release(
    store: Store,
) -> None:
    """With a source that knows no past it could not be read again."""
    bed = IngesterBed(store, "web", history=False)
    for minute in range(30):
        await bed.advance(NOW + minute * MINUTE)
    await bed.recommender.save(NOW + 29 * MINUTE)
    kept = {
        name: await store.states.load(state_key("c", sizing, 0))
        for name, sizing in (("strategy", EASY), ("evidence", StrategySpec.for_evidence()))
    }
    until, strategy = msgspec.msgpack.decode(kept["strategy"].data)  # type: ignore[union-attr]
    _, evidence = msgspec.msgpack.decode(kept["evidence"].data)  # type: ignore[union-attr]
    former = msgspec.msgpack.decode(strategy)
    former[5] = msgspec.msgpack.decode(evidence)[5]
    data = msgspec.msgpack.encode([until, msgspec.msgpack.encode(former)])
    await store.states.save(state_key("c", EASY, 0), data, timestamp=NOW)
    await store.states.forget(state_key("c", StrategySpec.for_evidence(), 0))
    bed.restart()
    await bed.advance(NOW + 30 * MINUTE)
    assert bed.samples("web", NOW + 30 * MINUTE) == 31


@pytest.mark.parametrize(
    "strategy", [name for name in STRATEGIES.names() if STRATEGIES.load_type(name).traits.counts_samples]
)
async def test_ingester_weighs_backfilled_samples_by_their_duration(store: Store, strategy: str) -> None:
    """With a sample every five minutes, the day before the start weighed as much as the five hours after it."""

    def script(_: PodContainer, t: float) -> tuple[float, float]:
        """The same for five minutes each; less and less in the past, and least from the start on."""
        blocks = max(NOW - HOUR - t, 0.0) // (5 * MINUTE)
        return 0.1 + blocks / 300, 1e8 * (1 + blocks / 30)

    sizing, found = StrategySpec.from_settings(strategy, {}), []
    for past_step in (5 * MINUTE, MINUTE):
        bed = IngesterBed(store, script=script)
        bed.add("web", sizing=sizing)
        pace = replace(PACE, backfill_period=26 * HOUR, backfill_step=past_step)
        bed.recommender = Recommender(
            {DEFAULT_SOURCE: bed.source}, store, cluster=str(past_step), schedule=pace, metrics=bed.metrics
        )
        for minute in range(0, 121, 5):
            await bed.advance(NOW + minute * MINUTE)
        learned = bed.recommender.estimate(container("web"), sizing, now=NOW + 2 * HOUR, is_long_running=True)
        assert learned
        asked = learned.proposal.cpu, learned.proposal.memory
        found.append([(ask.lower, ask.target, ask.upper) for ask in asked])
    assert found[0] == found[1]
    assert math.isfinite(found[0][0][1])
