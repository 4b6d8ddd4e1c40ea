"""Learning from several sources: each container from its own, and none waits for another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from actuation.builders import SMALL, pod
from harness.builders.records import workload
from trimtab.kube.kinds.pods import ContainerTermination, Pod
from trimtab.operator.metrics import Metrics
from trimtab.recommender.cohort import StrategySpec
from trimtab.recommender.cohort_store import TrackedContainer, state_key
from trimtab.recommender.oom_kills import OomKill
from trimtab.recommender.recommender import DEFAULT_SOURCE, Recommender
from trimtab.recommender.source_ingester import IngestSchedule
from trimtab.recommender.workload import count_containers_per_pod
from trimtab.store import Store
from trimtab.testing import ScriptedSource, steady
from trimtab.usage.errors import UsageError
from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.usage import PodContainer

NOW = 1_800_000_000.0
USUAL = StrategySpec.from_settings("percentile", {"min_samples": 1})
THANOS = USUAL._replace(source="thanos")
WEB, API = (WorkloadContainer("shop", "Deployment", name, "web") for name in ("web", "api"))
PODS = [PodContainer("shop", f"{name}-7c9f8d6b5-x2x2x", "web") for name in ("web", "api")]
OWNERS = PodOwnerIndex([workload(name, containers=({"name": "web"},)) for name in ("web", "api")])


class Sources:
    """Two sources with the same pods and different samples."""

    def __init__(self, store: Store) -> None:
        self.own, self.thanos = (
            ScriptedSource(steady(0.2, 3e8), *PODS),
            ScriptedSource(steady(0.8, 3e8), *PODS),
        )
        self.metrics = Metrics()
        self.learning = Recommender(
            {DEFAULT_SOURCE: self.own, "thanos": self.thanos},
            store,
            cluster="c",
            schedule=IngestSchedule(backfill_period=3600.0),
            metrics=self.metrics,
        )

    async def advance(self, now: float) -> set[WorkloadContainer]:
        wanted = {WEB: TrackedContainer(USUAL, 0.0), API: TrackedContainer(THANOS, 0.0)}
        return await self.learning.ingest(now, tracked=wanted, owners=lambda: OWNERS, running=set(wanted))

    def cpu(self, name: WorkloadContainer, sizing: StrategySpec) -> float | None:
        found = self.learning.estimate(name, sizing, now=NOW, is_long_running=True)
        return found.proposal.cpu.target if found else None


async def test_recommender_reads_each_container_from_its_own_source(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        both = Sources(store)
        assert await both.advance(NOW) == {WEB, API}
        assert both.cpu(WEB, USUAL) == pytest.approx(240, rel=0.1)
        assert both.cpu(API, THANOS) == pytest.approx(960, rel=0.1)
        assert both.cpu(WEB, THANOS) is None
        assert both.cpu(API, USUAL) is None
        assert (both.learning.ingester_for(USUAL).name, both.learning.ingester_for(THANOS).name) == (
            "scripted",
            "thanos",
        )


async def test_recommender_goes_on_beside_a_source_that_has_detected_nothing_yet(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        both = Sources(store)
        del both.thanos.capabilities
        both.thanos.failure = UsageError("asks for its capabilities later")
        await both.advance(NOW)
        assert both.cpu(WEB, USUAL) == pytest.approx(240, rel=0.1)
        assert both.learning.errors_by_source == {"thanos": "asks for its capabilities later"}


class Opening(dict[str, ScriptedSource]):
    """A source that is opened at its first use."""

    def __missing__(self, name: str) -> ScriptedSource:
        found = self[name] = ScriptedSource(steady(0.8, 3e8), *PODS)
        return found


async def test_recommender_reads_a_source_that_a_policy_names_later(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        sources = Opening({DEFAULT_SOURCE: ScriptedSource(steady(0.2, 3e8), *PODS)})
        recommender = Recommender(
            sources, store, cluster="c", schedule=IngestSchedule(backfill_period=3600.0), metrics=Metrics()
        )
        wanted = {WEB: TrackedContainer(USUAL, 0.0)}
        await recommender.ingest(NOW, tracked=wanted, owners=lambda: OWNERS, running=set(wanted))
        secret = USUAL._replace(source="prometheus:team-a")
        wanted[API] = TrackedContainer(secret, 0.0)
        # As the status writer does, before the next cycle.
        assert recommender.ingester_for(secret).name == "prometheus:team-a"
        await recommender.ingest(NOW + 60, tracked=wanted, owners=lambda: OWNERS, running=set(wanted))
        found = recommender.estimate(API, secret, now=NOW + 60, is_long_running=True)
        assert found is not None
        assert found.proposal.cpu.target == pytest.approx(960, rel=0.1)
        assert recommender.errors_by_source == {}


class CountedOpening(Opening):
    """Opens and closes sources, and counts how often opening one fails."""

    configured = (DEFAULT_SOURCE,)

    def __init__(self) -> None:
        super().__init__({DEFAULT_SOURCE: ScriptedSource(steady(0.2, 3e8), *PODS)})
        self.opened: set[str] = set()
        self.failures = 0

    async def open(self, name: str) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("no connection")
        self.opened.add(name)

    async def close(self, name: str) -> None:
        self.opened.discard(name)
        del self[name]
        raise RuntimeError("it is closed already")


async def test_recommender_opens_a_source_and_removes_it_with_its_last_policy(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        sources, metrics = CountedOpening(), Metrics()
        recommender = Recommender(
            sources,
            store,
            cluster="c",
            schedule=IngestSchedule(backfill_period=3600.0),
            metrics=metrics,
            source_lifecycle=sources,
        )
        secret = USUAL._replace(source="prometheus:team-a")
        wanted = {API: TrackedContainer(secret, 0.0)}

        async def ingest(now: float) -> None:
            await recommender.ingest(now, tracked=wanted, owners=lambda: OWNERS, running=set(wanted))

        sources.failures = 2
        await ingest(NOW)
        assert set(recommender.errors_by_source) == {DEFAULT_SOURCE, "prometheus:team-a"}
        await ingest(NOW + 60)
        assert recommender.errors_by_source == {}
        assert sources.opened == {DEFAULT_SOURCE, "prometheus:team-a"}

        def lateness() -> float | None:
            return metrics.registry.get_sample_value(
                "trimtab_usage_lateness_seconds", {"provider": "prometheus:team-a"}
            )

        assert lateness() is not None
        wanted.clear()
        await ingest(NOW + 120)
        assert sources.opened == set(sources) == set(recommender.ingesters) == {DEFAULT_SOURCE}
        assert lateness() is None


async def test_recommender_removes_the_source_that_an_earlier_leader_session_opened(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        sources = CountedOpening()
        await sources.open("prometheus:gone")
        _ = sources["prometheus:gone"]
        recommender = Recommender(
            sources,
            store,
            cluster="c",
            schedule=IngestSchedule(backfill_period=3600.0),
            metrics=Metrics(),
            source_lifecycle=sources,
        )
        for cycle in range(2):
            now = NOW + 60 * cycle
            await recommender.ingest(now, tracked={}, owners=lambda: OWNERS, running=())
            assert sources.opened == set(sources) == set(recommender.ingesters) == {DEFAULT_SOURCE}


async def test_recommender_isolates_an_unavailable_source(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        both = Sources(store)
        both.thanos.stop()
        await both.advance(NOW)
        assert both.cpu(WEB, USUAL) == pytest.approx(240, rel=0.1)
        assert both.learning.errors_by_source == {
            "thanos": "the scripted source does not answer; is it running?"
        }
        both.thanos.start()
        await both.advance(NOW + 60)
        assert both.learning.errors_by_source == {}
        assert both.cpu(API, THANOS) == pytest.approx(960, rel=0.1)


async def test_recommender_stores_state_by_source(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        before = Sources(store)
        await before.advance(NOW)
        await before.learning.save(NOW)
        after = Sources(store)
        after.own.stop()
        after.thanos.stop()
        await after.advance(NOW)
        assert after.cpu(WEB, USUAL) == before.cpu(WEB, USUAL)
        assert after.cpu(API, THANOS) == before.cpu(API, THANOS)
    assert state_key("c", USUAL, 0) != state_key("c", THANOS, 0)


async def test_recommender_passes_oom_kills_to_the_source_of_the_container(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        both = Sources(store)
        await both.advance(NOW)
        kill = OomKill(API, NOW - 5, 2e8, 2e8)
        assert both.learning.cohorts.observe_ooms([kill]) == {kill}
        assert both.learning.cohorts.observe_ooms([kill]) == set()


async def test_recommender_counts_oom_kills_despite_node_clock_skew(tmp_path: Path) -> None:
    """One kill with a time of next year hid all later ones of the container: it never got more memory again."""
    web, ahead = workload("web", containers=({"name": "web"},)), NOW + 365 * 86_400

    def record_kill(name: str, at: float) -> Pod:
        return pod(name, sizes={"web": SMALL}, exits={"web": ContainerTermination("OOMKilled", 137, int(at))})

    async with Store.open(tmp_path / "trimtab.db") as store:
        learning = Sources(store)
        await learning.advance(NOW)
        usual = learning.cpu(WEB, USUAL)

        def note(now: float, *pods: Pod) -> list[float]:
            return sorted(kill.at for kill in learning.learning.observe_pod_status(web, pods, [WEB], now=now))

        assert note(NOW, record_kill("web-0", ahead)) == [], "when it was is not known: it may be of long ago"
        assert note(NOW + 10, record_kill("web-0", ahead + 5)) == [NOW + 10]
        both = record_kill("web-0", ahead + 5), record_kill("web-1", NOW + 15)
        assert note(NOW + 20, *both) == [NOW + 15], "each counts once"
        assert note(ahead + 60, *both) == [], "also when that time has come"
        seen = learning.learning.estimate(WEB, USUAL, now=NOW + 30, is_long_running=True)
        assert seen
        assert seen.evidence.last_kill_at == NOW + 15
        assert learning.cpu(WEB, USUAL) == usual


@pytest.mark.parametrize(("containers", "cpu", "memory"), [(1, 25, 250 << 20), (2, 12, 125 << 20)])
async def test_recommender_divides_the_vpa_minimum_among_containers(
    tmp_path: Path, containers: int, cpu: int, memory: int
) -> None:
    """As VPA's recommender does: 25m and 250Mi are of a pod, not of each small sidecar."""
    vpa = StrategySpec.from_settings("vpa", {})
    async with Store.open(tmp_path / "trimtab.db") as store:
        source = ScriptedSource(steady(0.001, 1e6), *PODS)
        learning = Recommender(
            {DEFAULT_SOURCE: source},
            store,
            cluster="c",
            schedule=IngestSchedule(backfill_period=86400.0),
            metrics=Metrics(),
        )
        for now in (NOW, NOW + 60):  # also once more rows than the first were made
            wanted = {WEB: TrackedContainer(vpa, 0.0, containers)}
            await learning.ingest(now, tracked=wanted, owners=lambda: OWNERS, running={WEB})
            found = learning.estimate(WEB, vpa, now=now, is_long_running=True)
            assert found
            assert (found.proposal.cpu.target, found.proposal.memory.target) == (cpu, memory)


def test_containers_per_pod_includes_injected_containers() -> None:
    made = workload("web", containers=({"name": "web"}, {"name": "log"}))
    injected = pod(sizes={"web": SMALL, "log": SMALL, "mesh": SMALL, "proxy": SMALL})
    assert count_containers_per_pod(made, []) == 2
    assert count_containers_per_pod(made, [injected]) == 4


async def test_recommender_removes_lag_gauges_when_leadership_ends(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        both = Sources(store)
        await both.advance(NOW + 30)

        def estimates() -> list[float | None]:
            value = both.metrics.registry.get_sample_value
            return [
                value(f"trimtab_{gauge}", {"provider": provider})
                for gauge in ("usage_lateness_seconds", "containers_without_samples")
                for provider in ("scripted", "thanos")
            ]

        assert estimates() == [30.0, 30.0, 0.0, 0.0]
        both.learning.clear_gauges()
        assert estimates() == [None] * 4
