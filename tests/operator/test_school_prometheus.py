"""What is learned from a real Prometheus that is young, or was down for some hours."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from harness import UnavailableError
from harness.prometheus import Recorded
from harness.records import workload
from trimtab.operator.cohort import Sizing
from trimtab.operator.cohorts import Want
from trimtab.operator.metrics import Metrics
from trimtab.operator.school import Pace, School
from trimtab.store import Store
from trimtab.usage.owners import Owners, WorkloadContainer
from trimtab.usage.prometheus import Prometheus, PrometheusSettings
from usage.recording import MIB, SCRAPE, T0, Recording, named

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
EASY = Sizing.of("percentile", {"min_samples": 1})
WEB = WorkloadContainer("shop", "Deployment", "web", "app")
OWNERS = Owners([workload("web", containers=({"name": "app"},))])


def recorded_now(folder: Path, recording: Recording) -> Recorded:
    try:
        return Recorded(folder, recording.text)
    except UnavailableError as why:
        pytest.skip(str(why))


@pytest.fixture(scope="module")
def now() -> float:
    return time.time() // 300 * 300


@pytest.fixture(scope="module")
def young(tmp_path_factory: pytest.TempPathFactory, now: float) -> Iterator[Recorded]:
    """A server with six hours of samples up to now, of which it was down for the third and fourth."""
    first = (now - 6 * HOUR - T0) // SCRAPE
    pod = named("web-7c9f8d6b5-x2x2x")
    recording = Recording()
    for begin, end in ((0, 240), (480, 721)):
        scrapes = range(int(first) + begin, int(first) + end)
        recording.container(pod, cores=0.5, memory=100 * MIB, scrapes=scrapes)
    with recorded_now(tmp_path_factory.mktemp("prometheus"), recording) as running:
        yield running


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store.open(tmp_path / "trimtab.db") as store:
        yield store


async def test_school_learns_what_there_is_from_a_prometheus_younger_than_the_history_it_wants(
    young: Recorded, store: Store, now: float
) -> None:
    async with Prometheus(PrometheusSettings(url=young.url)) as source:
        school = School(source, store, cluster="c", pace=Pace(), metrics=Metrics())
        wanted = {WEB: Want(EASY, now - 30 * DAY)}
        await school.advance(now, wanted=wanted, owners=lambda: OWNERS, running={WEB})
        assert school.trouble == ""
        found = school.learned(WEB, EASY, now=now, runs_on=True)
    assert found
    evidence = found.evidence
    assert evidence.first == pytest.approx(now - 6 * HOUR, abs=300)
    assert evidence.last == pytest.approx(now, abs=300)
    assert evidence.ran == pytest.approx(4 * HOUR, rel=0.1)
    assert evidence.memory_peak == 100 * MIB
