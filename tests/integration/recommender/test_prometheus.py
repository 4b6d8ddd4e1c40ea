"""Learning from a real Prometheus that is young or was down for some hours."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from harness import UnavailableError
from harness.builders.records import workload
from harness.peers.prometheus import Recorded
from integration.recommender.test_late_prometheus import DAY, EASY, HOUR
from trimtab.operator.metrics import Metrics
from trimtab.recommender.cohort_store import TrackedContainer
from trimtab.recommender.recommender import DEFAULT_SOURCE, Recommender
from trimtab.recommender.source_ingester import IngestSchedule
from trimtab.store import Store
from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.prometheus import Prometheus, PrometheusSettings
from trimtab.web.backends.current_usage import sum_by_pod
from usage.recording import MIB, SCRAPE, T0, MetricRecording, container_labels


@pytest.fixture(scope="module")
def now() -> float:
    return time.time() // 300 * 300


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store.open(tmp_path / "trimtab.db") as store:
        yield store


WEB = WorkloadContainer("shop", "Deployment", "web", "app")
OWNERS = PodOwnerIndex([workload("web", containers=({"name": "app"},))])
UNMANAGED = container_labels("etl-0", namespace="batch")


def recorded_now(folder: Path, recording: MetricRecording) -> Recorded:
    try:
        return Recorded(folder, recording.text)
    except UnavailableError as why:
        pytest.skip(str(why))


@pytest.fixture(scope="module")
def young(tmp_path_factory: pytest.TempPathFactory, now: float) -> Iterator[Recorded]:
    """A server with six hours of samples up to now, of which it was down for the third and fourth."""
    first = (now - 6 * HOUR - T0) // SCRAPE
    pod = container_labels("web-7c9f8d6b5-x2x2x")
    recording = MetricRecording()
    for begin, end in ((0, 240), (480, 721)):
        scrapes = range(int(first) + begin, int(first) + end)
        recording.container(pod, cores=0.5, memory=100 * MIB, scrapes=scrapes)
        recording.container(UNMANAGED, cores=2.0, memory=300 * MIB, scrapes=scrapes)
    with recorded_now(tmp_path_factory.mktemp("prometheus"), recording) as running:
        yield running


async def test_ingester_backfills_from_prometheus_with_short_history(
    young: Recorded, store: Store, now: float
) -> None:
    async with Prometheus(PrometheusSettings(url=young.url)) as source:
        recommender = Recommender(
            {DEFAULT_SOURCE: source}, store, cluster="c", schedule=IngestSchedule(), metrics=Metrics()
        )
        wanted = {WEB: TrackedContainer(EASY, now - 30 * DAY)}
        await recommender.ingest(now, tracked=wanted, owners=lambda: OWNERS, running={WEB})
        assert recommender.errors_by_source == {}
        found = recommender.estimate(WEB, EASY, now=now, is_long_running=True)
    assert found
    evidence = found.evidence
    assert evidence.first_sample_at == pytest.approx(now - 6 * HOUR, abs=300)
    assert evidence.last_sample_at == pytest.approx(now, abs=300)
    assert evidence.run_seconds == pytest.approx(4 * HOUR, rel=0.1)
    assert evidence.memory_peak == 100 * MIB


async def test_ingester_reads_present_usage_of_all_namespaces_from_prometheus(
    young: Recorded, store: Store, now: float
) -> None:
    async with Prometheus(PrometheusSettings(url=young.url)) as source:
        recommender = Recommender(
            {DEFAULT_SOURCE: source}, store, cluster="c", schedule=IngestSchedule(), metrics=Metrics()
        )
        found = sum_by_pod(await recommender.ingesters[DEFAULT_SOURCE].read_present(now))
    assert found["batch", "etl-0"].cpu == pytest.approx(2.0, rel=0.01)
    assert found["batch", "etl-0"].memory == 300 * MIB
    assert found["shop", "web-7c9f8d6b5-x2x2x"].cpu == pytest.approx(0.5, rel=0.01)
    assert {used.sampled_at for used in found.values()} == {now}
