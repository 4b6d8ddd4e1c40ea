"""Test that a scan and the operator agree on a cluster that both see."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from harness.e2e.intent_loop import intent
from lab.simulator.scenes import GIB, MIB, scene, sized, workload
from trimtab.api import Duration
from trimtab.api.meta import LabelSelector, LabelSelectorOperator, LabelSelectorRequirement
from trimtab.api.optimizationpolicy import (
    CPUBounds,
    MetricsConfig,
    OptimizationPolicySpec,
    PolicyMode,
    PolicySelector,
    ResourceBounds,
    SizingGoal,
    StrategyChoice,
    UpdateStrategy,
)
from trimtab.api.quantity import Quantity
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import INTENTS
from trimtab.lab.simulator.scenario import Scenario
from trimtab.lab.simulator.simulation import Simulation
from trimtab.prices import CPU_HOUR, GIB_HOUR
from trimtab.scan.cluster_snapshot import ClusterSnapshot
from trimtab.scan.model import ScanResult
from trimtab.scan.render.summary import format_nodes
from trimtab.scan.scan import Scan, ScanRequest, WorkloadFilter
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
    labelled = [replace(each, labels={"app": each.name}) for each in workloads]
    return scene(labelled, trace, nodes=4, cpu=8.0)


def policy_of_a_scan(strategy: str) -> OptimizationPolicySpec:
    """Return the policy that a scan assumes: limits follow their requests, and nothing is applied."""
    return OptimizationPolicySpec(
        mode=PolicyMode.RECOMMEND,
        strategy=StrategyChoice(name=strategy),
        metrics_config=MetricsConfig(minimum_history=Duration.parse("1h")),
        update_strategy=UpdateStrategy(update_requests_only=False),
    )


async def scan(
    simulation: Simulation,
    strategy: str = "",
    *,
    ignore_policies: bool = False,
    workloads: WorkloadFilter = WorkloadFilter(),  # noqa: B008 - it is frozen
    **settings: object,
) -> ScanResult:
    """Scan the simulated cluster over the whole time that it has existed, with these settings of its operator."""
    config = simulation.config
    source = SelectedSource(simulation.usage_source, "simulation", has_history=True)
    request = ScanRequest(
        now=simulation.now,
        workloads=workloads,
        strategy=strategy,
        operator_namespace="" if ignore_policies else config.namespace,
        window=simulation.now - simulation.world.start,
        step=simulation.step,
    )
    snapshot = ClusterSnapshot(
        simulation.cluster_state,
        [None],
        {},
        {},
        config.model_copy(update=settings),
        intents=simulation.operator.intent_index,
    )
    running = Scan(CLIENT, source, request)
    selection = await running.select(snapshot)
    plan = await running.plan(selection)
    return running.assess(snapshot, selection, plan, await running.read(snapshot, selection, plan))


def recommended_sizes(found: ScanResult) -> Sizes:
    return {(one.key.name, each.name): each.recommended for one in found.workloads for each in one.containers}


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
        found = await scan(simulation, strategy, ignore_policies=True)
    recommended = recommended_sizes(found)
    assert len(recommended) == 3
    assert all(each.has_changes for one in found.workloads for each in one.containers)
    assert recommended == targets


async def test_scan_of_one_namespace_recommends_what_a_scan_of_all_does() -> None:
    varied = varied_scenario()
    apart = tuple(replace(each, namespace=f"{each.name}-team") for each in varied.workloads)
    async with Simulation(
        replace(varied, workloads=apart), policies={}, history_seconds=6 * 3600
    ) as simulation:
        await simulation.run(2 * simulation.step)
        whole = recommended_sizes(await scan(simulation))
        for each in apart:
            part = await scan(simulation, workloads=WorkloadFilter(names=(each.name,)))
            assert recommended_sizes(part).items() <= whole.items()


def selecting(*names: str) -> PolicySelector:
    requirement = LabelSelectorRequirement(key="app", operator=LabelSelectorOperator.IN, values=names)
    return PolicySelector(workload_selector=LabelSelector(match_expressions=(requirement,)))


def own_policies() -> dict[str, OptimizationPolicySpec]:
    """Return policies with a strategy, bounds, steps and limits of their own, and one that is disabled."""
    learned = MetricsConfig(minimum_history=Duration.parse("1h"))
    return {
        "stepwise": OptimizationPolicySpec(
            selector=selecting("web"),
            mode=PolicyMode.RECOMMEND,
            goal=SizingGoal.RELIABILITY,
            metrics_config=learned,
            resource_bounds=ResourceBounds(cpu=CPUBounds(min=Quantity.parse("600m"))),
        ),
        "percentile": OptimizationPolicySpec(
            selector=selecting("short"),
            mode=PolicyMode.RECOMMEND,
            metrics_config=learned.model_copy(update={"percentile": "P50", "safety_factor": 2.0}),
        ),
        "off": OptimizationPolicySpec(selector=selecting("idle"), mode=PolicyMode.DISABLED),
    }


async def test_scan_recommends_what_the_operator_does_under_each_policy() -> None:
    async with Simulation(varied_scenario(), policies=own_policies(), history_seconds=3 * DAY) as simulation:
        await simulation.run(2 * simulation.step)
        targets: Sizes = {
            (key.name, each.container): each.target
            for key, outcome in simulation.outcomes().items()
            for each in outcome.recommendations
        }
        found = await scan(simulation)
        ignoring = await scan(simulation, ignore_policies=True)
        chosen = await scan(simulation, "vpa")
    assert found.nodes
    assert (found.nodes.count, found.nodes.needed) == (4, 2)
    assert found.nodes.cost == pytest.approx(4 * 730 * (8 * CPU_HOUR + 16 * GIB_HOUR))
    assert format_nodes(found) == "Nodes: 4 for $936 a month; all requests fit on 2 of the largest."
    assert {name for name, _ in targets} == {"web", "short"}
    assert recommended_sizes(found) == targets
    policies = {one.key.name: one.policy for one in found.workloads}
    assert {name: each and (each.name, each.strategy) for name, each in policies.items()} == {
        "web": ("trimtab-system/stepwise", "trimtab"),
        "short": ("trimtab-system/percentile", "percentile"),
    }
    assert {one.key.name: one.operator_obstacle for one in found.workloads} == {
        "web": "the policy's mode is Recommend",
        "short": "the policy's mode is Recommend",
    }
    assert [(one.key.name, one.reason) for one in found.skipped] == [
        ("idle", "policy trimtab-system/off has the mode Disabled")
    ]
    assert {one.key.name: one.policy for one in ignoring.workloads} == dict.fromkeys(("web", "short", "idle"))
    assert {one.policy.strategy for one in chosen.workloads if one.policy} == {"vpa"}


async def test_scan_names_the_problem_of_a_policy_that_the_operator_rejects() -> None:
    broken = OptimizationPolicySpec(mode=PolicyMode.AUTO, strategy=StrategyChoice(name="none-such"))
    async with Simulation(varied_scenario(), policies={"broken": broken}, history_seconds=DAY) as simulation:
        found = await scan(simulation)
    assert not found.workloads
    assert {one.reason.partition(": spec")[0] for one in found.skipped} == {
        "policy trimtab-system/broken cannot be used"
    }


async def test_scan_needs_no_plugin_that_only_the_image_of_the_operator_has() -> None:
    every = MetricsConfig(minimum_history=Duration.parse("1h"))
    policies = {
        "source": OptimizationPolicySpec(
            selector=selecting("web"), metrics_config=every.model_copy(update={"provider": "our-source"})
        ),
        "strategy": OptimizationPolicySpec(
            selector=selecting("short"), metrics_config=every, strategy=StrategyChoice(name="our-strategy")
        ),
    }
    async with Simulation(varied_scenario(), policies=policies, history_seconds=DAY) as simulation:
        await simulation.run(2 * simulation.step)
        found = await scan(simulation)
        chosen = await scan(simulation, "vpa")
    assert {one.key.name: one.policy.name for one in found.workloads if one.policy} == {
        "web": "trimtab-system/source"
    }
    (short,) = (one for one in found.skipped if one.key.name == "short")
    assert "our-strategy" in short.reason
    assert {one.key.name: one.policy.strategy for one in chosen.workloads if one.policy} == {
        "web": "vpa",
        "short": "vpa",
    }


async def test_scan_follows_no_policy_in_a_namespace_that_the_operator_does_not_watch() -> None:
    async with Simulation(varied_scenario(), policies=own_policies(), history_seconds=DAY) as simulation:
        await simulation.run(2 * simulation.step)
        (namespace,) = {each.namespace for each in simulation.cluster_state.list_workloads()}
        watched = await scan(simulation, watch_namespaces=(namespace,))
        elsewhere = await scan(simulation, watch_namespaces=("elsewhere",))
    assert all(one.policy for one in watched.workloads)
    assert {one.key.name: one.policy for one in elsewhere.workloads} == dict.fromkeys(
        ("web", "short", "idle")
    )


async def test_scan_names_the_intent_that_controls_the_size() -> None:
    auto = OptimizationPolicySpec(
        selector=selecting("short"),
        mode=PolicyMode.AUTO,
        metrics_config=MetricsConfig(minimum_history=Duration.parse("1h")),
    )
    async with Simulation(varied_scenario(), policies={"auto": auto}, history_seconds=DAY) as simulation:
        await simulation.run(2 * simulation.step)
        (namespace,) = {each.namespace for each in simulation.cluster_state.list_workloads()}
        objective = {"name": "p99", "value": 20, "measuredBy": "p99"}
        for name in ("web", "short"):
            simulation.informers.put(
                INTENTS, intent(name, objectives=[objective], namespace=namespace, target=name)
            )
        found = await scan(simulation)
        ignoring = await scan(simulation, ignore_policies=True)
    obstacles = {one.key.name: one.operator_obstacle for one in found.workloads}
    assert obstacles["web"] == f"Intent {namespace}/web controls its size"
    assert obstacles["short"].startswith(f"Intent {namespace}/short controls the size of this workload")
    assert "Intent" not in obstacles["idle"]
    assert not any("Intent" in one.operator_obstacle for one in ignoring.workloads)
