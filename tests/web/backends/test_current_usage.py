"""Usage on the pages is that of all pods, managed or not; what is old is unknown, with the time of the last sample."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from trimtab.api.optimizationpolicy import NamespaceFilter, OptimizationPolicySpec, PolicyMode, PolicySelector
from trimtab.lab.simulator.simulation import Simulation
from trimtab.operator.metrics import Metrics
from trimtab.recommender.recommender import DEFAULT_SOURCE, Recommender
from trimtab.recommender.source_ingester import IngestSchedule
from trimtab.store import Store
from trimtab.testing import ScriptedSource, steady
from trimtab.usage.errors import SourceRefused, SourceUnavailable
from trimtab.usage.sampled import ContainerSample, PollingSettings, PollingSource
from trimtab.usage.source import UsageQuery
from trimtab.usage.usage import PodContainer, Usage
from trimtab.web.app import build_app
from trimtab.web.auth import LocalAccess
from trimtab.web.backends.current_usage import CurrentUsage, sum_by_pod
from trimtab.web.backends.live import LiveBackend
from trimtab.web.demo.cluster import STEP, build_scenario
from trimtab.web.model import Overview, PodUsageSample
from trimtab.web.server import serve_dashboard

HOUR = 3600.0
NOW = 1_800_000_000.0
MANAGED = "payments"


class Scene:
    """The demo's cluster, of which a policy selects one namespace, and the board on it."""

    def __init__(self, stage: Simulation) -> None:
        self.stage = stage
        self.ahead = 0.0
        self.board = LiveBackend(
            lambda: stage.controllers.views,
            name="test",
            clock=lambda: stage.world.control_time + self.ahead,
            every=0.0,
        )

    async def overview(self) -> Overview:
        await self.board.refresh()
        return await self.board.overview()

    def usage_by_node(self) -> tuple[list[float], list[float]]:
        """Return the CPU and memory that containers really use, by node."""
        containers, many = self.stage.world.container_arrays.containers, len(self.stage.world.nodes.names)
        on = containers.node >= 0
        cpu, memory = (
            np.bincount(containers.node[on], values[on], many)
            for values in (containers.cpu, containers.memory)
        )
        return cpu.tolist(), memory.tolist()

    def answer(self, answer: Any) -> None:
        """Have the source answer so from now on."""
        self.stage.usage_source.read = answer  # type: ignore[method-assign]

    async def page(self, path: str) -> str:
        async with (
            serve_dashboard(build_app(self.board, LocalAccess()), "127.0.0.1:0") as url,
            aiohttp.ClientSession() as session,
            session.get(url + path) as answer,
        ):
            return await answer.text()


@asynccontextmanager
async def one_namespace_managed() -> AsyncIterator[Scene]:
    policy = OptimizationPolicySpec(
        mode=PolicyMode.RECOMMEND, selector=PolicySelector(namespaces=NamespaceFilter(allow=(MANAGED,)))
    )
    async with Simulation(build_scenario(days=1, seed=1), policies={"p": policy}, seed=1) as stage:
        await stage.run(HOUR)
        yield Scene(stage)


def newest(overview: Overview, name: str) -> float | None:
    return next(curve.values[-1] for curve in overview.cpu.curves if curve.name == name)


async def test_dashboard_shows_usage_of_unmanaged_namespaces_without_learning() -> None:
    """The dashboard showed 0.9 of 10 cores as used instead of 9.0: the rest was in namespaces without a policy."""
    async with one_namespace_managed() as scene:
        overview = await scene.overview()
        cpu, memory = scene.usage_by_node()
        assert newest(overview, "used") == pytest.approx(sum(cpu))
        nodes = sorted(
            await scene.board.nodes(), key=lambda node: scene.stage.world.nodes.names.index(node.name)
        )
        assert [node.cpu_used for node in nodes] == pytest.approx(cpu)
        assert [node.memory_used for node in nodes] == pytest.approx(memory)
        assert overview.money.covered == pytest.approx(overview.money.requested)
        assert "usage is known for" not in await scene.page("/")
        assert "of the requests" not in await scene.page("/nodes")
        rows = await scene.board.workloads()
        assert all(row.used_cpu is not None for row in rows if row.pods)
        source: Any = scene.stage.controllers.views.sources[DEFAULT_SOURCE]
        assert {name.namespace for cohort in source._cohorts for name in cohort} == {MANAGED}


async def test_dashboard_shows_stale_usage_as_unknown_with_last_sample_time() -> None:
    async def away(ask: UsageQuery, **_: Any) -> Usage:
        raise SourceUnavailable("simulation: no answer; is it running?")

    async with one_namespace_managed() as scene:
        before, sampled = await scene.overview(), scene.stage.world.now
        scene.answer(away)
        scene.ahead = 3 * STEP
        soon = await scene.overview()
        assert newest(soon, "used") == newest(before, "used")
        assert soon.last_sample is None
        scene.ahead = 6 * STEP
        later = await scene.overview()
        assert newest(later, "used") is None
        assert (later.money.used, later.last_sample) == (None, sampled)
        assert later.problem == "simulation: no answer; is it running?"
        for node in await scene.board.nodes():
            assert (node.cpu_used, node.memory_used) == (None, None)
            assert node.last_sample == (sampled if node.pods else None)
        assert all(row.used_cpu is None for row in await scene.board.workloads())
        assert "the last sample is from" in await scene.page("/")
        assert "the last sample is from" in await scene.page("/nodes")


async def test_dashboard_shows_usage_as_unknown_without_samples() -> None:
    """As a Prometheus does whose scrapes of the kubelets fail, or a metrics-server's history."""

    async def read_nothing(ask: UsageQuery, **_: Any) -> Usage:
        return Usage((), ask.start, ask.step, np.empty((ask.steps, 0)), np.empty((ask.steps, 0)))

    async with one_namespace_managed() as scene:
        await scene.board.refresh()
        sampled = scene.stage.world.now
        scene.answer(read_nothing)
        scene.ahead = 6 * STEP
        later = await scene.overview()
        assert (newest(later, "used"), later.last_sample) == (None, sampled)


async def test_dashboard_shows_share_of_requests_with_known_usage() -> None:
    async with one_namespace_managed() as scene:
        read = scene.stage.usage_source.read

        async def narrow(ask: UsageQuery, **given: Any) -> Usage:
            if ask.namespaces is None:
                raise SourceRefused("simulation: name the namespaces; there are too many")
            return await read(ask, **given)

        scene.answer(narrow)
        overview = await scene.overview()
        pods = [pod for pod in scene.stage.cluster_state.pods if pod.namespace == MANAGED and pod.node]
        covered = sum(each.resources.cpu_request or 0 for pod in pods for each in pod.containers) / 1000
        nodes = await scene.board.nodes()
        assert sum(node.cpu_covered or 0.0 for node in nodes) == pytest.approx(covered)
        assert 0 < (overview.money.covered or 0.0) < 0.5 * overview.money.requested
        assert overview.problem == ""
        assert "usage is known for" in await scene.page("/")
        assert "of the requests" in await scene.page("/nodes")


async def test_dashboard_refreshes_while_a_source_does_not_answer() -> None:
    async def frozen(ask: UsageQuery, **_: Any) -> Usage:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async with one_namespace_managed() as scene:
        scene.answer(frozen)
        running = asyncio.create_task(scene.board.run())
        try:
            async with asyncio.timeout(10):
                await scene.board.wait_changed(scene.board.version)
            assert await scene.board.workloads()
            assert [node.cpu_used for node in await scene.board.nodes()] == [None] * 8
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


POD = ("shop", "web-0")


@asynccontextmanager
async def learning_from(folder: Path, **sources: ScriptedSource) -> AsyncIterator[Recommender]:
    async with Store.open(folder / "trimtab.db") as store:
        named = {DEFAULT_SOURCE if name == "own" else name: source for name, source in sources.items()}
        yield Recommender(named, store, cluster="c", schedule=IngestSchedule(), metrics=Metrics())


def web(cpu: float) -> ScriptedSource:
    return ScriptedSource(steady(cpu, 1e9), PodContainer(*POD, "web"), PodContainer(*POD, "log"))


async def test_current_usage_prefers_the_first_source_with_current_samples(tmp_path: Path) -> None:
    own, other, present = web(0.5), web(2.0), CurrentUsage()
    async with learning_from(tmp_path, own=own, thanos=other) as learning:
        await present.read(learning.ingesters, {POD}, now=NOW)
        assert present.list_current(NOW)[POD] == (1.0, 2e9, NOW // 60 * 60)
        own.failure = RuntimeError("a plugin's own fault")
        await present.read(learning.ingesters, {POD}, now=NOW + 120)
        assert present.list_current(NOW + 120)[POD].cpu == 1.0
        assert present.errors == ['scripted failed: RuntimeError("a plugin\'s own fault")']
        await present.read(learning.ingesters, {POD}, now=NOW + 600)
        assert present.list_current(NOW + 600)[POD].cpu == 4.0


async def test_current_usage_forgets_removed_pods(tmp_path: Path) -> None:
    present = CurrentUsage()
    async with learning_from(tmp_path, own=web(0.5)) as learning:
        await present.read(learning.ingesters, {POD}, now=NOW)
        assert present.find_last_sample([POD]) == NOW // 60 * 60
        await present.read(learning.ingesters, set(), now=NOW + 60)
        assert present.list_current(NOW + 60) == {}
        assert present.find_last_sample([POD]) is None
        assert present.last_sampled_at == NOW // 60 * 60


class FixedSource(PollingSource[PollingSettings]):
    """A source of the present alone, such as metrics-server or the kubelets."""

    name = "fixed"
    settings_type = PollingSettings
    at = NOW - 75
    """The time of its last sample."""

    async def snapshot(self) -> list[ContainerSample]:
        names = PodContainer(*POD, "web"), PodContainer("batch", "etl-0", "etl")
        return [ContainerSample(name, self.at, 0.5, 1e9) for name in names]


async def test_current_usage_keeps_polled_pods_until_they_are_stale(tmp_path: Path) -> None:
    present, pods = CurrentUsage(), {POD, ("batch", "etl-0")}
    now = NOW
    async with Store.open(tmp_path / "trimtab.db") as store:
        source = FixedSource(PollingSettings(), store=store, clock=lambda: now)
        learning = Recommender(
            {DEFAULT_SOURCE: source}, store, cluster="c", schedule=IngestSchedule(), metrics=Metrics()
        )
        await present.read(learning.ingesters, pods, now=now)
        assert {pod: used.cpu for pod, used in present.list_current(now).items()} == dict.fromkeys(pods, 0.5)
        now += 240
        await present.read(learning.ingesters, pods, now=now)
        assert present.list_current(now).keys() == pods
        now += 120
        await present.read(learning.ingesters, pods, now=now)
        assert present.list_current(now) == {}
        assert present.find_last_sample(pods) == present.last_sampled_at == (NOW - 75) // 60 * 60 + 60


async def test_source_ingester_reads_current_usage_of_all_namespaces_without_ooms(tmp_path: Path) -> None:
    source = web(0.5)
    async with learning_from(tmp_path, own=source) as learning:
        await learning.ingesters[DEFAULT_SOURCE].read_present(NOW)
    (ask,) = source.queries
    assert replace(ask, start=0.0, end=1.0) == UsageQuery(start=0.0, end=1.0, step=60.0, include_ooms=False)
    assert ask.steps == 5


def test_sum_by_pod_omits_pods_with_only_one_resource() -> None:
    """Such a pod was shown as one that uses no CPU."""
    nan = np.nan
    usage = Usage(
        containers=(
            PodContainer("shop", "web", "web"),
            PodContainer("shop", "web", "log"),
            PodContainer("shop", "new", "web"),
            PodContainer("shop", "lost", "web"),
        ),
        start=NOW,
        step=60.0,
        cpu=np.array([[0.5, nan, nan, 0.2], [nan, nan, nan, 0.3]]),
        memory=np.array([[1e8, 2e8, 3e8, nan], [nan, 4e8, 3e8, nan]]),
    )
    assert sum_by_pod(usage) == {("shop", "web"): PodUsageSample(0.5, 5e8, NOW + 60)}


async def test_workload_page_opens_before_its_past_is_read() -> None:
    """The page was blank for as long as the source took to answer."""
    released = asyncio.Event()
    async with one_namespace_managed() as scene:
        await scene.board.refresh()
        row = next(row for row in await scene.board.workloads() if row.namespace == MANAGED)
        path = f"/workloads/{row.namespace}/{row.kind}/{row.name}"
        read = scene.stage.usage_source.read

        async def slow(ask: UsageQuery, **given: Any) -> Usage:
            await released.wait()
            return await read(ask, **given)

        scene.answer(slow)
        async with asyncio.timeout(30):
            page = await scene.page(path)
        assert "is loading" in page
        assert 'hx-trigger="load, ' in page
        released.set()
        loaded = await scene.page(f"/parts{path}")
        assert "is loading" not in loaded
        assert 'hx-trigger="load, ' not in await scene.page(path)
