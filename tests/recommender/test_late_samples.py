"""Late samples are learned once, with any delay and after restarts; containers without samples are reported."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.builders.records import workload
from trimtab.operator.metrics import Metrics
from trimtab.recommender.cohort import StrategySpec
from trimtab.recommender.cohort_store import TrackedContainer
from trimtab.recommender.recommender import DEFAULT_SOURCE, Recommender
from trimtab.recommender.source_ingester import UNSAMPLED_AFTER, IngestSchedule
from trimtab.sizing.evidence import Evidence
from trimtab.store import Store
from trimtab.testing import Script, ScriptedSource, steady
from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.source import Capabilities, Progress, UsageQuery
from trimtab.usage.usage import PodContainer, Usage

NOW = 1_800_000_000.0
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
PACE = IngestSchedule(backfill_period=HOUR, max_lateness=10 * MINUTE)
EASY = StrategySpec.from_settings("percentile", {"min_samples": 1})
OLD = NOW - 30 * DAY

Delay = Callable[[str, float], float]
"""Return the delay in seconds after which the sample of a workload is available."""


def container(name: str) -> WorkloadContainer:
    return WorkloadContainer("shop", "Deployment", name, "web")


def pod(name: str) -> PodContainer:
    return PodContainer("shop", f"{name}-7c9f8d6b5-x2x2x", "web")


class LateSource(ScriptedSource):
    """Knows each sample only some time after it was taken."""

    def __init__(self, script: Script, *names: str, delay: Delay) -> None:
        super().__init__(script, *map(pod, names))
        self.names = names
        self.delay = delay
        self.now = NOW

    async def read(self, ask: UsageQuery, *, progress: Progress | None = None) -> Usage:
        found = await super().read(ask, progress=progress)
        hidden = np.array([[t + self.delay(name, t) > self.now for name in self.names] for t in found.times])
        cpu, memory = (np.where(hidden, np.nan, grid) for grid in (found.cpu, found.memory))
        return replace(found, cpu=cpu, memory=memory)


class LateSamplesBed:
    """Some workloads with a pod each, of which a server knows late."""

    def __init__(self, store: Store, *names: str, delay: Delay, script: Script | None = None) -> None:
        self.store = store
        self.metrics = Metrics()
        self.source = LateSource(script or steady(0.2, 3e8), *names, delay=delay)
        self.wanted = {container(name): TrackedContainer(EASY, OLD) for name in names}
        self.pods = {pod(name): OLD for name in names}
        self.owners = PodOwnerIndex([workload(name, containers=({"name": "web"},)) for name in names])
        self.restart()

    def restart(self) -> None:
        self.recommender = Recommender(
            {DEFAULT_SOURCE: self.source}, self.store, cluster="c", schedule=PACE, metrics=self.metrics
        )

    async def advance(self, now: float) -> None:
        self.source.now = now
        await self.recommender.ingest(
            now,
            tracked=self.wanted,
            owners=lambda: self.owners,
            running=set(self.wanted),
            pods=self.pods,
        )
        assert self.recommender.errors_by_source == {}

    def evidence(self, name: str) -> Evidence:
        found = self.recommender.estimate(container(name), EASY, now=self.source.now, is_long_running=True)
        assert found
        return found.evidence

    def gauge(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"trimtab_{name}", {"provider": "scripted"})


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store.open(tmp_path / "trimtab.db") as store:
        yield store


async def test_ingester_learns_from_a_delayed_source(store: Store) -> None:
    bed = LateSamplesBed(store, "web", delay=lambda *_: 150.0)
    for minute in range(30):
        await bed.advance(NOW + minute * MINUTE + 6)
    evidence = bed.evidence("web")
    assert bed.source.now - evidence.last_sample_at <= 150 + MINUTE
    assert evidence.coverage == 1.0
    assert bed.gauge("usage_lateness_seconds") == pytest.approx(150, abs=MINUTE)
    assert bed.gauge("containers_without_samples") == 0


async def test_ingester_learns_a_peak_delayed_by_remote_write(store: Store) -> None:
    def behind(_: str, t: float) -> float:
        """Eight minutes behind for a quarter of an hour."""
        return max(0.0, NOW + 23 * MINUTE - t) if NOW + 5 * MINUTE <= t < NOW + 20 * MINUTE else 0.0

    def spike(_: PodContainer, t: float) -> tuple[float, float]:
        return 0.2, 2e9 if NOW + 8 * MINUTE <= t < NOW + 12 * MINUTE else 3e8

    bed = LateSamplesBed(store, "web", delay=lambda name, t: min(behind(name, t), 9 * MINUTE), script=spike)
    for minute in range(40):
        await bed.advance(NOW + minute * MINUTE + 6)
    evidence = bed.evidence("web")
    assert evidence.memory_peak == 2_000_000_000
    assert evidence.coverage == 1.0


async def test_ingester_records_a_peak_while_waiting_for_another_container(store: Store) -> None:
    """The steps are not learned from yet; but what is known of them is evidence."""
    bed = LateSamplesBed(
        store,
        "web",
        "late",
        delay=lambda name, t: 9 * MINUTE if name == "late" and t > NOW else 0.0,
        script=lambda name, t: (0.2, 2e9 if "web" in name.pod and t >= NOW + 5 * MINUTE else 3e8),
    )
    for minute in range(8):
        await bed.advance(NOW + minute * MINUTE + 6)
    evidence = bed.evidence("web")
    assert evidence.memory_peak == 2_000_000_000
    assert evidence.last_sample_at == NOW + 7 * MINUTE
    assert bed.evidence("late").last_sample_at == NOW
    used = bed.recommender.latest_usage(container("web"), EASY)
    assert used
    assert used.memory == 2e9


async def test_ingester_bounds_the_wait_for_late_samples(store: Store) -> None:
    gone = NOW + 5 * MINUTE
    bed = LateSamplesBed(
        store, "web", "gone", delay=lambda name, t: DAY if name == "gone" and t > gone else 0.0
    )
    learned = []
    for minute in range(30):
        await bed.advance(NOW + minute * MINUTE + 6)
        learned.append(bed.recommender.cohorts.find(container("web"), EASY).ingested_until)  # type: ignore[union-attr]
    assert learned[-1] == NOW + 29 * MINUTE, "the ingester no longer waits for it"
    assert max(NOW + minute * MINUTE - at for minute, at in enumerate(learned)) <= PACE.max_lateness + MINUTE


async def test_ingester_reports_running_containers_without_samples(store: Store) -> None:
    bed = LateSamplesBed(
        store, "web", "silent", "new", delay=lambda name, _: 0.0 if name == "web" else DAY * 365
    )
    bed.pods[pod("new")] = NOW - MINUTE
    for minute in range(3):
        await bed.advance(NOW + minute * MINUTE + 6)
    assert [*bed.recommender.unsampled] == [pod("silent")], "the new one may still get some"
    assert bed.gauge("containers_without_samples") == 1
    await bed.advance(NOW + UNSAMPLED_AFTER + MINUTE)
    assert bed.recommender.unsampled == {pod("silent"), pod("new")}
    bed.source.delay = lambda *_: 0.0
    await bed.advance(NOW + UNSAMPLED_AFTER + 2 * MINUTE)
    assert [*bed.recommender.unsampled] == []
    assert bed.gauge("containers_without_samples") == 0


async def test_ingester_does_not_report_untracked_containers(store: Store) -> None:
    bed = LateSamplesBed(store, "web", "other", delay=lambda name, _: 0.0 if name == "web" else DAY * 365)
    del bed.wanted[container("other")]
    await bed.advance(NOW + 6)
    assert bed.recommender.unsampled == set()


async def test_ingester_learns_every_sample_of_a_step_that_arrives_in_parts(store: Store) -> None:
    """A server that is twenty seconds behind has only the first samples of the last step when it is read."""

    class Partly(ScriptedSource):
        now = NOW

        async def read(self, ask: UsageQuery, *, progress: Progress | None = None) -> Usage:
            found = await super().read(ask, progress=progress)
            partly = found.times[:, None] > self.now - 20
            return replace(found, memory=np.where(partly, 1e8, found.memory))

    bed = LateSamplesBed(store, "web", delay=lambda *_: 0.0)
    source = bed.source = Partly(steady(0.2, 3e8), pod("web"))  # type: ignore[assignment]
    source.capabilities = Capabilities(history=True)
    bed.restart()
    for minute in range(12):
        await bed.advance(NOW + minute * MINUTE + 6)
    cohort = bed.recommender.cohorts.find(container("web"), EASY)
    assert cohort
    lowest = cohort.get_proposal(container("web"), now=bed.source.now).memory.lower
    assert lowest == pytest.approx(3e8 * 1.2, rel=0.02), "no half step was learned from"


MINUTES = 12


def learned_with(delays: dict[str, list[float]], restarts: dict[int, bool]) -> dict[str, tuple[object, ...]]:
    """Return the estimates at the end, with these delays of samples and restarts of the operator.

    A restart states whether the state could still be saved; otherwise it was a crash.
    """
    names = sorted(delays)

    def delay(name: str, t: float) -> float:
        minute = round((t - NOW) / MINUTE)
        return delays[name][minute] if 0 < minute < MINUTES else 0.0

    def script(of: PodContainer, t: float) -> tuple[float, float]:
        minute = round((t - NOW) / MINUTE)
        return 0.1 + minute % 7 / 10, 1e8 * (1 + names.index(of.pod[0]) + minute % 5)

    async def learn(folder: str) -> dict[str, tuple[object, ...]]:
        async with Store.open(Path(folder) / "trimtab.db") as store:
            bed = LateSamplesBed(store, *names, delay=delay, script=script)
            for minute in range(MINUTES + 12):
                if minute in restarts:
                    if restarts[minute]:
                        await bed.recommender.save(bed.source.now)
                    bed.restart()
                await bed.advance(NOW + minute * MINUTE + 6)
            found: dict[str, tuple[object, ...]] = {}
            for name in names:
                learned = bed.recommender.estimate(
                    container(name), EASY, now=bed.source.now, is_long_running=True
                )
                assert learned
                proposal, evidence = learned.proposal, learned.evidence
                targets = (proposal.cpu.target, proposal.memory.target)
                found[name] = (
                    *targets,
                    evidence.samples,
                    evidence.run_seconds,
                    evidence.coverage,
                    evidence.last_sample_at,
                )
            return found

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(learn(folder))


late = st.one_of(st.just(0.0), st.floats(0.0, PACE.max_lateness - 2 * MINUTE))


@settings(max_examples=25)
@given(
    st.fixed_dictionaries({name: st.lists(late, min_size=MINUTES, max_size=MINUTES) for name in "ab"}),
    st.dictionaries(st.integers(1, MINUTES + 8), st.booleans(), max_size=2),
)
def test_estimates_are_independent_of_sample_delay(
    delays: dict[str, list[float]], restarts: dict[int, bool]
) -> None:
    assert learned_with(delays, restarts) == learned_on_time()


@cache
def learned_on_time() -> dict[str, tuple[object, ...]]:
    return learned_with({name: [0.0] * MINUTES for name in "ab"}, {})
