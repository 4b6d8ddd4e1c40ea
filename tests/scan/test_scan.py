"""Test that a scan and the operator agree on a cluster that both see."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from lab.simulator.scenes import GIB, MIB, scene, sized, workload
from trimtab.api import Duration
from trimtab.api.optimizationpolicy import (
    MetricsConfig,
    OptimizationPolicySpec,
    PolicyMode,
    StrategyChoice,
    UpdateStrategy,
)
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.rest.client import Client
from trimtab.lab.simulator.scenario import Scenario
from trimtab.lab.simulator.simulation import Simulation
from trimtab.scan.cluster_snapshot import ClusterSnapshot
from trimtab.scan.model import ScanResult
from trimtab.scan.scan import Scan, ScanRequest
from trimtab.scan.source_selection import SelectedSource
from trimtab.usage.trace import Trace

DAY = 86400.0
CLIENT = cast("Client", SimpleNamespace(connection=SimpleNamespace(context="test", server="https://test")))

Sizes = dict[tuple[str, str], Resources]


def varied_scenario() -> Scenario:
    """Build an oversized, an idle and an undersized workload, each with its own daily cycle."""
    hours = np.arange(4 * 288)[:, None] / 12
    cycle = 1 + 0.5 * np.sin(hours / 24 * 2 * np.pi + np.arange(3))
    trace = Trace(
        names=("a", "b", "c"),
        start=0.0,
        step=300.0,
        cpu=cycle * [0.3, 0.02, 0.4],
        memory=(0.8 + 0.2 * cycle) * np.array([400.0, 100.0, 300.0]) * MIB,
    )
    workloads = [
        workload("web", sized(2000, 2 * GIB, 4000, 4 * GIB), replicas=4),
        workload("idle", sized(1000, GIB), series=1, replicas=2),
        workload("short", sized(100, 64 * MIB), series=2, replicas=2),
    ]
    return scene(workloads, trace, nodes=4, cpu=8.0)


def policy_of_a_scan(strategy: str) -> OptimizationPolicySpec:
    """Return the policy that a scan assumes: limits follow their requests, and nothing is applied."""
    return OptimizationPolicySpec(
        mode=PolicyMode.RECOMMEND,
        strategy=StrategyChoice(name=strategy),
        metrics_config=MetricsConfig(minimum_history=Duration.parse("1h")),
        update_strategy=UpdateStrategy(update_requests_only=False),
    )


async def scan(simulation: Simulation, strategy: str) -> ScanResult:
    """Scan the simulated cluster over the whole time that it has existed."""
    source = SelectedSource(simulation.usage_source, "simulation", has_history=True)
    request = ScanRequest(
        now=simulation.now,
        strategy=strategy,
        window=simulation.now - simulation.world.start,
        step=simulation.step,
    )
    snapshot = ClusterSnapshot(simulation.cluster_state, [None], {}, {})
    running = Scan(CLIENT, source, request)
    selection = await running.select(snapshot)
    plan = await running.plan(selection)
    return running.assess(snapshot, selection, plan, await running.read(snapshot, selection, plan))


@pytest.mark.parametrize("strategy", ["trimtab", "vpa", "percentile"])
async def test_scan_recommends_the_targets_of_the_operator(strategy: str) -> None:
    policies = {"all": policy_of_a_scan(strategy)}
    async with Simulation(varied_scenario(), policies=policies, history_seconds=3 * DAY) as simulation:
        await simulation.run(2 * simulation.step)
        targets: Sizes = {
            (key.name, each.container): each.target
            for key, outcome in simulation.outcomes().items()
            for each in outcome.recommendations
        }
        found = await scan(simulation, strategy)
    recommended: Sizes = {
        (one.key.name, each.name): each.recommended for one in found.workloads for each in one.containers
    }
    assert len(recommended) == 3
    assert all(each.has_changes for one in found.workloads for each in one.containers)
    assert recommended == targets
