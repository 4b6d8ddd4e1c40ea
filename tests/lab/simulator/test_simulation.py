"""The operator of production on a simulated cluster, in simulated time."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from lab.simulator.scenes import GIB, MIB, flat, scene, sized, workload
from trimtab.api import Duration
from trimtab.api.optimizationpolicy import (
    Canary,
    ChangePolicy,
    MetricsConfig,
    OptimizationPolicySpec,
    PolicyMode,
    UpdateStrategy,
    WorkloadState,
)
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.lab.simulator.metrics import ClusterMetrics
from trimtab.lab.simulator.scenario import Scenario, ServiceSpec
from trimtab.lab.simulator.simulation import Simulation
from trimtab.usage.trace import Trace

HOUR = 3600.0
WEB = WorkloadKey("Deployment", "default", "web")


def auto(
    *, strategy: UpdateStrategy | None = None, changes: ChangePolicy | None = None
) -> OptimizationPolicySpec:
    return OptimizationPolicySpec(
        mode=PolicyMode.AUTO,
        changes=changes or ChangePolicy(),
        metrics_config=MetricsConfig(minimum_history=Duration.parse("1h")),
        update_strategy=strategy or UpdateStrategy(),
        reconciliation_interval=Duration.parse("30m"),
    )


def office() -> Scenario:
    """Two workloads that ask for far more than they use, and one for less."""
    return scene(
        [
            workload("web", sized(2000, 2 * GIB, 4000, 4 * GIB), replicas=4, service=ServiceSpec()),
            workload("idle", sized(1000, GIB), series=1, replicas=2),
            workload("short", sized(100, 64 * MIB), series=2, replicas=2),
        ],
        flat((0.3, 400.0 * MIB), (0.02, 100.0 * MIB), (0.6, 500.0 * MIB)),
        nodes=4,
        cpu=8.0,
    )


async def test_simulation_brings_workloads_to_their_usage_while_they_run() -> None:
    moments: list[ClusterMetrics] = []
    async with Simulation(office(), policies={"all": auto()}) as stage:
        stage.subscribe(moments.append)
        await stage.run(12 * HOUR)
        outcomes = stage.outcomes()
        status = await stage.status("all")
        kept = await stage.store.history.find(name="web", what="applied")
    first, last = moments[0], moments[-1]
    assert len(moments) == 144
    assert last.at == stage.world.start + 12 * HOUR
    assert first.cpu_requested == 10.2
    assert last.cpu_requested < first.cpu_requested / 2
    assert last.dollars_month < first.dollars_month
    assert last.nodes_needed <= first.nodes_needed
    assert {outcome.state for outcome in outcomes.values()} == {WorkloadState.APPLIED}
    assert outcomes[WEB].recommendations[0].resources.cpu_request is not None
    assert status["counts"] == {"monitored": 3, "updated": 3, "skipped": 0}
    assert kept
    happened = Counter(happening.reason for moment in moments for happening in moment.events)
    assert happened["Resizing"] >= 3
    assert not happened["OOMKilled"]
    assert not any(moment.kills or moment.slow for moment in moments)
    restarts = [count for pod in stage.world.pods.values() for count in pod.restarts]
    assert restarts == [0] * 8  # in place, every one


async def test_simulation_without_a_policy_changes_nothing() -> None:
    moments: list[ClusterMetrics] = []
    async with Simulation(office()) as stage:
        stage.subscribe(moments.append)
        await stage.run(2 * HOUR)
        assert stage.outcomes() == {}
    assert {moment.cpu_requested for moment in moments} == {10.2}
    assert not [happening for moment in moments for happening in moment.events]


async def test_simulation_reverts_a_harmful_change() -> None:
    # For six hours little memory is held, then as much as was asked for: while the new size is being watched.
    quiet = flat((0.3, 300.0 * MIB), steps=96)
    memory = quiet.memory.copy()
    memory[36:] = 900.0 * MIB
    on = scene([workload("web", sized(500, GIB, 1000, GIB + MIB), replicas=4)], replace(quiet, memory=memory))
    watched = UpdateStrategy(
        update_requests_only=False,
        canary=Canary(percent=50, observation=Duration.parse("6h")),
    )
    moments: list[ClusterMetrics] = []
    async with Simulation(on, policies={"all": auto(strategy=watched)}) as stage:
        stage.subscribe(moments.append)
        await stage.run(8 * HOUR)
    happened = [each for moment in moments for each in moment.events]
    reasons = [each.reason for each in happened]
    assert "OOMKilled" in reasons
    assert reasons.index("Resizing") < reasons.index("OOMKilled") < reasons.index("Reverted")
    assert {pod.containers[0].resources.memory_limit for pod in stage.world.pods.values()} == {GIB + MIB}


async def test_simulation_learns_from_history_before_the_operator_started() -> None:
    moments: list[ClusterMetrics] = []
    async with Simulation(office(), policies={"all": auto()}, history_seconds=6 * HOUR) as stage:
        stage.subscribe(moments.append)
        await stage.run(1 * HOUR)
    assert len(moments) == 84
    assert moments[71].cpu_requested == 10.2
    assert moments[-1].cpu_requested < 10.2


@pytest.mark.parametrize(("window", "shrinks"), [("24h", False), ("0s", True)])
async def test_simulation_keeps_at_night_what_the_morning_needs_by_policy(
    window: str,
    shrinks: bool,  # noqa: FBT001 - a case of the table
) -> None:
    day = np.repeat([0.1, 1.0], 48)[:, None]  # quarters of an hour
    demand = Trace(("s0",), 4 * 86400.0, 900.0, day, np.full_like(day, 200.0 * MIB))
    changes = ChangePolicy(stabilization=Duration.parse(window))
    busy = scene([workload("web", sized(2000, GIB), replicas=2)], demand, nodes=2, cpu=8.0)
    moments: list[ClusterMetrics] = []
    async with Simulation(busy, policies={"all": auto(changes=changes)}, seed=7) as stage:
        stage.subscribe(moments.append)
        await stage.run(59 * HOUR)
    by_night = moments[-1].cpu_requested / 2
    assert by_night < 0.3 if shrinks else 1.0 <= by_night < 1.5


def eager() -> OptimizationPolicySpec:
    return auto(strategy=UpdateStrategy(update_requests_only=False))


def said(moments: list[ClusterMetrics], reason: str) -> list[str]:
    return [each.message for moment in moments for each in moment.events if each.reason == reason]


async def test_stage_keeps_the_applied_size_when_all_pods_are_replaced() -> None:
    """A service that needs 3 cores had 1.2 for an hour: its next change started from the template's size."""
    busy = scene(
        [workload("web", sized(100, 256 * MIB, 200, 512 * MIB), replicas=2)],
        flat((1.5, 200.0 * MIB)),
        nodes=2,
        cpu=16.0,
    )
    moments: list[ClusterMetrics] = []
    async with Simulation(busy, policies={"all": eager()}, seed=1) as stage:
        stage.subscribe(moments.append)
        await stage.run(12 * HOUR)
        changes, used = len(said(moments, "Resizing")), moments[-1].cpu_used
        for pod in list(stage.world.pods.values()):
            stage.world.delete_pod(pod)
        await stage.run(2 * HOUR)
    assert used > 2.5
    assert len(said(moments, "Resizing")) == changes
    assert moments[-1].cpu_used > 2.5


async def test_stage_recommends_the_same_however_often_a_workload_is_scaled() -> None:
    """An autoscaler that scaled it every two minutes caused 109 Recommended Events in three days, instead of 5."""
    recommended = []
    for scaled in (False, True):
        demand = flat((0.1, 200.0 * MIB))
        web = scene([workload("web", sized(1000, GIB, None, GIB), replicas=6)], demand, nodes=4, cpu=8.0)
        moments: list[ClusterMetrics] = []
        async with Simulation(web, policies={"all": eager()}, seed=1) as stage:
            stage.subscribe(moments.append)
            for step in range(120):
                if scaled:
                    stage.world.scale_workload(WEB, (4, 10, 3, 9, 2)[step % 5])
                await stage.run(demand.step)
        recommended.append(len(said(moments, "Recommended")))
    assert 0 < recommended[1] <= recommended[0] + 1


def stepped(before: float, after: float, *, at: float, hours: float) -> Trace:
    """Memory in MiB of one container, a sample a minute: so much up to a time in hours, and so much from then on."""
    minutes = np.arange(int(hours * 60))
    memory = np.where(minutes < at * 60, before, after)[:, None] * MIB
    return Trace(names=("web",), start=0.0, step=60.0, cpu=np.full(memory.shape, 0.05), memory=memory)


async def changes_and_kills(
    on: Scenario, hours: float, *, update_requests_only: bool = False
) -> tuple[list[str], int, str]:
    """The changes, the number of OOM kills, and why the size is what it is at the end."""
    follow = auto(strategy=UpdateStrategy(update_requests_only=update_requests_only))
    changes: list[str] = []
    kills = 0

    def note(moment: ClusterMetrics) -> None:
        nonlocal kills
        for each in moment.events:
            kills += each.reason == "OOMKilled"
            if each.reason == "Resizing":
                changes.append(each.message)

    async with Simulation(on, policies={"all": follow}, seed=1) as stage:
        stage.subscribe(note)
        await stage.run(hours * HOUR - 60)
        (outcome,) = stage.outcomes().values()
    return changes, kills, "".join(each.text for each in outcome.recommendations)


@pytest.mark.parametrize("replicas", [1, 3])
async def test_simulation_stops_raising_a_leak_after_three_kills(replicas: int) -> None:
    """A container of 512Mi that takes whatever it gets was raised 23 times, up to a whole node of 64 GiB."""
    leak = scene(
        [workload("web", sized(100, 512 * MIB, None, 512 * MIB), replicas=replicas)],
        stepped(100.0, 60_000.0, at=0.5, hours=8),
        nodes=4,
    )
    changes, _, why = await changes_and_kills(leak, 8)
    assert len({re.findall(r"limit (\w+)", change)[1] for change in changes}) == 3
    assert "looks like a leak" in why


async def test_simulation_helps_a_killed_container_under_the_default_policy() -> None:
    """Its limit was kept, so that it was killed 45 times in five days."""
    grown = scene(
        [workload("web", sized(100, 512 * MIB, None, 512 * MIB), replicas=1)],
        stepped(100.0, 700.0, at=6, hours=12),
        nodes=4,
    )
    changes, kills, _ = await changes_and_kills(grown, 12, update_requests_only=True)
    raised = {re.findall(r"limit (\w+)", change)[1] for change in changes}
    assert raised == {"512Mi", "615Mi", "738Mi"}
    assert kills < 10, "a few at each limit"


async def test_simulation_restores_the_size_of_a_killed_workload_at_once() -> None:
    """It climbed by a fifth at a time, with a kill of every pod for each; sometimes it was taken for a leak."""
    busy = scene(
        [workload("web", sized(100, GIB, None, GIB), replicas=2)],
        stepped(200.0, 900.0, at=12, hours=16),
        nodes=2,
    )
    changes, kills, _ = await changes_and_kills(busy, 16)
    cuts, relief = changes[:-1], changes[-1]
    assert len(cuts) >= 3, "it was made far smaller in the quiet hours"
    assert "(limit 1Gi), all pods at once" in relief.split(" to ")[1]
    assert kills == 2


async def test_pods_that_restarted_for_less_get_more_as_soon_as_they_need_it() -> None:
    """They restart for less only once a day; that wait must not keep the operator from seeing that the load has grown."""
    cpu = np.where(np.arange(12 * 12) < 6 * 12, 0.1, 0.6)[:, None]
    demand = Trace(("s0",), 4 * 86400.0, 300.0, cpu, np.full_like(cpu, 200.0 * MIB))
    spec = auto(strategy=UpdateStrategy(allow_in_place_resize=False, allow_recreate=True))
    changes: list[tuple[float, str]] = []
    async with Simulation(
        scene([workload("web", sized(1000, GIB), replicas=3)], demand), policies={"all": spec}
    ) as stage:

        def note(moment: ClusterMetrics) -> None:
            hours = (moment.at - stage.world.start) / HOUR
            changes.extend((hours, each.message) for each in moment.events if each.reason == "Resizing")

        stage.subscribe(note)
        await stage.run(11 * HOUR)
        again = await stage.controllers.reconciler.reconcile(WEB, stage.now)
        outcome = stage.outcomes()[WEB]
        asked = [pod.containers[0].resources.cpu_request or 0 for pod in stage.cluster_state.pods]
    quiet, busy = ([each for each in changes if (each[0] > 6) is later] for later in (False, True))
    assert len(quiet) == 1, "once for less"
    assert 1 <= len(busy) <= 2
    assert busy[0][0] < 9
    assert min(asked) >= 600
    assert "they restart for a smaller size from" in outcome.reason
    assert again is not None
    assert again <= 1800, "its reconciliationInterval, however long it waits"
