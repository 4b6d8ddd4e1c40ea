"""Learning from a real Prometheus with late samples."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from harness import UnavailableError
from harness.builders.records import workload
from harness.peers.prometheus import Written
from trimtab.operator.metrics import Metrics
from trimtab.recommender.cohort import StrategySpec
from trimtab.recommender.cohort_store import TrackedContainer
from trimtab.recommender.recommender import DEFAULT_SOURCE, Recommender
from trimtab.recommender.source_ingester import IngestSchedule
from trimtab.store import Store
from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.prometheus import Prometheus, PrometheusSettings
from trimtab.usage.usage import PodContainer
from usage.recording import CPU, MEMORY, MIB, container_labels

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
EASY = StrategySpec.from_settings("percentile", {"min_samples": 1})


@pytest.fixture(scope="module")
def now() -> float:
    return time.time() // 300 * 300


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store.open(tmp_path / "trimtab.db") as store:
        yield store


LATE: dict[str, Callable[[float], float]] = {
    "prompt": lambda _: 0.0,
    "behind": lambda _: 150.0,
    "queue": lambda at: (34 - at) * 0.99 * MINUTE if 22 <= at < 34 else 0.0,
    "unordered": lambda at: 400.0 if 40 <= at < 44 else 20.0,
}
"""Seconds by which the samples of each pod are late, by the minute: never; always; held back for twelve minutes, and then
all at once; a gap that is filled while later ones are there."""


def lateness_of(pod: str, at: float, start: float) -> float:
    return LATE[pod.partition("-")[0]]((at - start) / MINUTE)


async def test_ingester_learns_every_late_prometheus_sample_once(
    tmp_path: Path, store: Store, now: float
) -> None:
    """Samples come by remote write, in and out of order, with a restart of the operator in between."""
    try:
        server = Written(tmp_path)
    except UnavailableError as why:
        pytest.skip(str(why))
    start, minutes = now - 3 * HOUR, 80
    pods = {name: container_labels(f"{name}-7c9f8d6b5-x2x2x") for name in LATE}
    containers = {name: WorkloadContainer("shop", "Deployment", name, "app") for name in LATE}
    owners = PodOwnerIndex([workload(name, containers=({"name": "app"},)) for name in LATE])
    running = {PodContainer("shop", pod["pod"], "app"): start - DAY for pod in pods.values()}

    def memory(name: str, at: float) -> float:
        """A peak in one scrape alone, while the samples of some come late."""
        peak = {"behind": 30, "queue": 25, "unordered": 41}.get(name)
        return 900 * MIB if peak and at == start + peak * MINUTE + 45 else 100 * MIB

    samples = [
        (at + lateness_of(pod["pod"], at, start), {**pod, "__name__": metric}, at, value)
        for name, pod in pods.items()
        for scrape in range(minutes * 4)
        for at in (start + scrape * 15.0,)
        for metric, value in ((MEMORY, memory(name, at)), (CPU, 1000 + 0.5 * scrape * 15.0))
    ]
    samples.sort(key=lambda sample: sample[0])
    settings = PrometheusSettings(url=server.url)
    pace = IngestSchedule(backfill_period=30 * MINUTE, save_interval=300.0)
    done = 0
    with server:
        async with Prometheus(settings) as source:
            recommender = Recommender(
                {DEFAULT_SOURCE: source}, store, cluster="c", schedule=pace, metrics=Metrics()
            )
            for minute in range(10, minutes):
                at = start + minute * MINUTE + 6
                known = next(
                    (place for place in range(done, len(samples)) if samples[place][0] > at), len(samples)
                )
                server.write((labels, taken, value) for _, labels, taken, value in samples[done:known])
                done = known
                if minute == 42:
                    recommender = Recommender(
                        {DEFAULT_SOURCE: source}, store, cluster="c", schedule=pace, metrics=Metrics()
                    )
                await recommender.ingest(
                    at,
                    tracked={each: TrackedContainer(EASY, start - DAY) for each in containers.values()},
                    owners=lambda: owners,
                    running=set(containers.values()),
                    pods=running,
                )
                assert recommender.errors_by_source == {}
    found = {
        name: recommender.estimate(each, EASY, now=at, is_long_running=True)
        for name, each in containers.items()
    }
    evidence = {name: each.evidence for name, each in found.items() if each}
    assert {each.samples for each in evidence.values()} == {evidence["prompt"].samples}
    assert evidence["prompt"].samples >= minutes - 10
    assert [evidence[name].memory_peak for name in LATE] == [100 * MIB, *[900 * MIB] * 3]
    assert {each.coverage for each in evidence.values()} == {1.0}
