"""The demo: a day and a half of it, with all that it is to show; and that a seed is a cluster."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import pytest
import pytest_asyncio

from trimtab.cli import run
from trimtab.intents.effects import latency_curve
from trimtab.lab.simulator.metrics import ClusterMetrics
from trimtab.lab.simulator.simulation import Simulation
from trimtab.operator.kernels import compile_effects, compile_kernels
from trimtab.sizing.strategies.trimtab_engine import kernels
from trimtab.store import Store
from trimtab.usage.trace import Trace
from trimtab.web.backends.live import LiveBackend
from trimtab.web.backends.snapshot import SnapshotBackend, take_snapshot
from trimtab.web.demo.cluster import build_policies, build_scenario
from trimtab.web.demo.runner import DemoRunner, open_demo
from trimtab.web.demo.summary import SummaryDocument, build_summary, render_summary
from trimtab.web.model import BacktestResult, WorkloadAction
from trimtab.web.views import detail
from trimtab.web.views.timeseries import read_usage_history, run_backtests
from web.views.test_history import UnavailableStore

pytestmark = pytest.mark.asyncio(loop_scope="module")

DAYS = 1.5


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def finished_demo() -> AsyncIterator[DemoRunner]:
    async with open_demo(days=DAYS, seed=1) as found:
        await found.run()
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def found(finished_demo: DemoRunner) -> SummaryDocument:
    return await build_summary(finished_demo.backend, days=DAYS, seed=1)


async def test_demo_lowers_requests_and_frees_nodes_and_money(found: SummaryDocument) -> None:
    for resource in ("cpuCores", "memoryBytes"):
        each = found[resource]
        assert each["usedMean"] < each["requestedNow"] < 0.8 * each["requestedAtFirst"]
    assert found["moneyMonth"]["saved"] > 0.2 * found["moneyMonth"]["atFirst"]
    assert found["nodes"]["neededNow"] < found["nodes"]["neededAtFirst"]


async def test_demo_handles_an_oom_kill_and_reverts_a_canary(found: SummaryDocument) -> None:
    assert any(kill["workload"] == "platform/mailer" for kill in found["kills"])
    assert any("throttled" in entry["why"] for entry in found["reverted"])
    assert found["changes"]["applied"] > 20


async def test_demo_meets_an_intent_and_shows_learned_effects(
    finished_demo: DemoRunner, found: SummaryDocument
) -> None:
    assert found["intents"] == [{"name": "booking/reservations-fast", "met": True}]
    (intent,) = await finished_demo.backend.intents()
    (objective,) = intent.objectives
    assert objective.plot
    seen = [value for value in objective.plot.curves[0].values if value is not None]
    assert max(seen[:6]) > objective.target > seen[-1]
    assert {each.plot.along for each in intent.effects} == {"cores per pod", "pods"}
    for effect in intent.effects:
        low, high, expected, points = (latency_curve.values for latency_curve in effect.plot.curves)
        for least, likely, most in zip(low, expected, high, strict=True):
            assert likely is None or (least or 0.0) <= likely <= (most or 0.0)
        assert sum(value is not None for value in points) == effect.points > 0


async def test_demo_summary_has_json_and_text(found: SummaryDocument) -> None:
    assert json.loads(json.dumps(found)) == found
    text = "\n".join(str(line) for line in render_summary(found, width=80))
    assert "requested initially" in text
    assert "reverted" in text


async def test_demo_summary_names_each_workload_once(found: SummaryDocument) -> None:
    why = ("no capacity", "throttled")
    reverted = [{"at": float(at), "workload": "shop/web", "why": why[at]} for at in (1, 0)]
    text = [str(line) for line in render_summary({**found, "reverted": reverted}, width=80)]
    assert "Reverted    shop/web (2 times): throttled" in text


async def test_demo_applies_holds_and_releases_on_request(finished_demo: DemoRunner) -> None:
    board = finished_demo.backend
    row = next(row for row in await board.workloads() if row.name == "ledger")
    assert row.mode == "Recommend"
    reverted = await board.run_action(WorkloadAction.APPLY, row.key, who="ann", why="looks right")
    assert "until it is released" in reverted
    await finished_demo.advance(hours=3)
    after = await board.workload(row.key)
    assert after
    assert (after.row.has.cpu or 0) < (row.has.cpu or 0)
    assert "held at manually chosen sizes by ann (unverified): looks right" in after.row.pinned
    applied = next(entry for entry in after.events if entry.what == "applied")
    assert (applied.who, applied.why) == ("ann (unverified)", "looks right")

    await board.undo(applied.id, who="ann", why="rather not")
    await finished_demo.advance(hours=3)
    back = await board.workload(row.key)
    assert back
    assert back.row.has == row.has
    await board.run_action(WorkloadAction.RELEASE, row.key, who="ann", why="")
    await finished_demo.advance(hours=1)
    free = await board.workload(row.key)
    assert free
    assert not free.row.pinned


async def test_workload_page_shows_history_reasons_and_backtest(finished_demo: DemoRunner) -> None:
    row = next(row for row in await finished_demo.backend.workloads() if row.name == "storefront")
    found = await finished_demo.backend.workload(row.key)
    assert found
    (container,) = found.containers
    names = [latency_curve.name for latency_curve in container.cpu.curves]
    assert names[:3] == ["used", "request", "recommended"]
    requested = [each for each in container.cpu.curves[1].values if each is not None]
    assert requested[0] == 2.0 > requested[-1] == row.has.cpu
    assert any(factor.source for factor in container.explanation)
    assert {each.strategy for each in container.backtest} >= {"trimtab", "vpa", "krr"}


async def test_workload_page_without_store_shows_the_present(finished_demo: DemoRunner) -> None:
    views = finished_demo.backend._views()
    assert views
    away = replace(views, store=cast("Store", UnavailableStore(views.store)))
    board = LiveBackend(lambda: away, name="demo", clock=lambda: finished_demo.backend.observed_at)
    row = next(row for row in await finished_demo.backend.workloads() if row.name == "storefront")
    found = await board.workload(row.key)
    assert found
    assert (found.problem, found.events) == ("store.url: the server does not answer", ())
    assert set(found.containers[0].cpu.curves[1].values) == {row.has.cpu}


async def test_concurrent_page_requests_read_history_once(
    finished_demo: DemoRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = next(row.key for row in await finished_demo.backend.workloads() if row.name == "storefront")
    before = await finished_demo.backend.workload(key)
    asked: list[str] = []

    async def reading(*given: Any, **named: Any) -> Trace:
        asked.append("read")
        return await read_usage_history(*given, **named)

    async def replaying(*given: Any, **named: Any) -> tuple[BacktestResult, ...]:
        asked.append("replay")
        return await run_backtests(*given, **named)

    monkeypatch.setattr(detail, "read_usage_history", reading)
    monkeypatch.setattr(detail, "run_backtests", replaying)
    finished_demo.backend._details.invalidate(key)
    once, again = await asyncio.gather(
        finished_demo.backend.workload(key), finished_demo.backend.workload(key)
    )
    assert asked == ["read"]
    assert before
    assert once
    assert again
    assert once.containers == again.containers
    assert once.containers[0].backtest == before.containers[0].backtest


async def test_snapshot_shows_the_same_and_rejects_actions(finished_demo: DemoRunner) -> None:
    board = SnapshotBackend(await take_snapshot(finished_demo.backend))
    assert await board.workloads() == tuple(await finished_demo.backend.workloads())
    assert (await board.overview()).money == (await finished_demo.backend.overview()).money
    row = (await board.workloads())[0]
    detail = await board.workload(row.key)
    assert detail
    assert detail.acts == {}


async def test_warmup_compiles_the_kernels_that_the_demo_uses(finished_demo: DemoRunner) -> None:
    assert finished_demo.days == DAYS

    def compiled_signatures() -> dict[str, int]:
        found = (vars(module).items() for module in (kernels, latency_curve))
        return {
            name: len(each.signatures) for part in found for name, each in part if hasattr(each, "signatures")
        }

    before = compiled_signatures()
    compile_kernels()
    compile_effects()
    assert compiled_signatures() == before
    assert before["charge_forecasts"]
    assert before["predict_log_changes"]


async def test_demo_seed_determines_the_cluster() -> None:
    async def figures() -> SummaryDocument:
        async with open_demo(days=0.3, seed=3) as playing:
            await playing.run()
            return await build_summary(playing.backend, days=0.3, seed=3)

    assert await figures() == await figures()
    assert (build_scenario(days=1, seed=3).demand.cpu != build_scenario(days=1, seed=4).demand.cpu).any()


async def test_demo_rejects_wrong_options_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--days", "99"]) == 2
    assert run(["demo", "--address", "0.0.0.0:80"]) == 2
    assert run(["demo", "--snapshot", "/nowhere.json"]) == 2
    days, address, snapshot = capsys.readouterr().err.splitlines()
    assert "--days 99: give more than 0 and at most 28" in days
    assert "give a loopback address" in address
    assert "--snapshot /nowhere.json: cannot be read: No such file or directory" in snapshot


@pytest.mark.long
async def test_demo_never_lowers_a_cpu_limit_below_its_recorded_peak() -> None:
    """It once gave shop/checkout a limit of 500m on a Sunday, after a peak of 664m on the Wednesday before."""
    whole = build_scenario(days=8, seed=7)
    checkout = tuple(each for each in whole.workloads if each.name == "checkout")
    lowered: list[tuple[float, float]] = []
    highest, before = 0.0, 0.0
    async with Simulation(replace(whole, workloads=checkout), policies=build_policies(), seed=7) as stage:

        def note(_: ClusterMetrics) -> None:
            nonlocal highest, before
            rows = stage.world.container_arrays
            live = rows.demand_column >= 0
            limit = float(rows.containers.cpu_limit[live].min())
            if limit < before:
                lowered.append((limit, highest))
            before, highest = limit, max(highest, float(rows.containers.cpu[live].max()))

        stage.subscribe(note)
        await stage.run(8 * 86400.0 - 900)
    assert lowered
    assert [each for each in lowered if each[0] < each[1]] == []
