"""Policies of users among faults, on the same cluster and with the same faults: `trimtab simulate --faults`."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from trimtab.lab.faults.catalog import INVARIANTS, draw_faults
from trimtab.lab.faults.plan import FaultPlan
from trimtab.lab.faults.runner import CaseResult, FaultCase, FaultRun
from trimtab.lab.faults.single_thread import IN_MEMORY
from trimtab.lab.faults.trace import format_time
from trimtab.lab.faults.worlds import DAY, ContainerDraw, WorkloadDraw, WorldSpec
from trimtab.lab.simulator.comparison import PolicyRun, PolicySpecs, load_policies
from trimtab.lab.simulator.metrics import ClusterMetrics
from trimtab.lab.simulator.scenario import Scenario
from trimtab.lab.simulator.world import find_start
from trimtab.plural import pluralize

CALM_SHARE = 0.8
"""The share of a run after which there are no faults."""
DAYS_PER_PLAN = 2.0
"""The days of a run for which one plan of an intensity is meant; longer runs have more faults."""
ANY_POLICY = "any"
"""The policy that faults are drawn for: each contender has policies of its own."""
_INVARIANTS = tuple(each for each in INVARIANTS if not each.needs_stationary_demand)


class FaultComparison:
    """Runs contenders on one cluster, each with the same faults."""

    def __init__(self, scenario: Scenario, *, days: float, warm_up: float, seed: int, intensity: str) -> None:
        """Create a comparison; harm and cost are counted after `warm_up` seconds."""
        self._scenario = scenario
        self._warm_up = warm_up
        self._world = describe_scenario(scenario, days=days, seed=seed)
        self._plan = draw_faults(
            msgspec.structs.replace(self._world, policies={ANY_POLICY: {}}),
            seed=seed,
            intensity=intensity,
            times=max(1, round(days / DAYS_PER_PLAN)),
        )

    async def run_policy(
        self, policy_name: str, *, on_progress: Callable[[float], None] = lambda _: None
    ) -> tuple[PolicyRun, CaseResult]:
        """Run the cluster under a contender; `on_progress` is called with the share that is done."""
        policies = load_policies(policy_name)
        world = msgspec.structs.replace(self._world, policies=_encode_policies(policies))
        case = FaultCase(seed=world.seed, world=world, plan=_assign_policies(self._plan, sorted(policies)))
        found = PolicyRun(
            policy_name, self._scenario.pools[0], counted_from=self._world.start + self._warm_up
        )

        def observe(metrics: ClusterMetrics) -> None:
            found.record(metrics)
            on_progress(min((metrics.at - world.start) / (world.days * DAY), 1.0))

        with tempfile.TemporaryDirectory(prefix="trimtab-faults-", dir=IN_MEMORY) as folder:
            run = FaultRun(
                case,
                Path(folder),
                scenario=self._scenario,
                autoscale=True,
                invariants=_INVARIANTS,
            )
            run.subscribe(observe)
            await run.run(replicas=1 if policies else 0)
        return found, run.result()


def describe_result(run: PolicyRun, result: CaseResult) -> list[str]:
    """Describe the faults of a run, and each promise that was not kept, in a line each."""
    total = result.fault_counts.total()
    faults = ", ".join(f"{kind} {count}" for kind, count in result.fault_counts.most_common())
    kept = "all promises were kept" if not result.violations else "promises were not kept:"
    first = f"{run.policy_name}: {pluralize(total, 'fault')} ({faults or 'none took effect'}); {kept}"
    return [first, *(f"  {format_time(each.at)} {each}" for each in result.violations)]


def describe_scenario(scenario: Scenario, *, days: float, seed: int) -> WorldSpec:
    """Describe a cluster as a world that faults can be drawn for."""
    demand = scenario.demand
    workloads = tuple(
        WorkloadDraw(
            name=workload.name,
            namespace=workload.namespace,
            kind=workload.kind,
            replicas=workload.replicas,
            containers=tuple(
                ContainerDraw(
                    name=each.name,
                    cpu=float(np.nanmean(demand.cpu[:, each.demand_series])),
                    memory=float(np.nanmean(demand.memory[:, each.demand_series])),
                    resources=each.resources,
                    restart_on_memory_resize=each.restart_on_memory_resize,
                )
                for each in workload.containers
            ),
            labels=dict(workload.labels),
            on_delete=workload.update == "OnDelete",
            startup_seconds=workload.startup_seconds,
            max_unavailable=workload.max_unavailable,
            is_service=workload.service is not None,
        )
        for workload in scenario.workloads
    )
    return WorldSpec(
        seed=seed,
        start=find_start(scenario),
        days=days,
        calm_at=round(CALM_SHARE * days * DAY),
        step=demand.step,
        nodes=sum(pool.count for pool in scenario.pools),
        node_cpu=scenario.pools[0].cpu,
        node_memory=scenario.pools[0].memory,
        workloads=workloads,
    )


def _encode_policies(policies: PolicySpecs) -> dict[str, dict[str, object]]:
    return {name: spec.model_dump(mode="json", exclude_unset=True) for name, spec in policies.items()}


def _assign_policies(plan: FaultPlan, names: list[str]) -> FaultPlan:
    """Direct the faults of policies at those of a contender; without any they have no target."""
    return FaultPlan(
        faults=tuple(
            msgspec.structs.replace(
                fault,
                target=random.Random(fault.seed).choice(names) if names else "",  # noqa: S311 - not for secrets
            )
            if fault.target == ANY_POLICY
            else fault
            for fault in plan.faults
        )
    )
