"""The same cluster under one policy after another: what each would have needed, wasted, harmed and cost.

All see the same demand, and act by the same operator with the same way of applying, its defaults: requests alone, in
place where that can be. Only the policy differs, as a rule its strategy; `none` leaves requests as they are. Nodes come
and go as they are needed, so that what is asked for too little is felt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import yaml

from trimtab.api import Duration, OptimizationPolicy
from trimtab.api.optimizationpolicy import OptimizationPolicySpec, PolicyMode, StrategyChoice, UpdateStrategy
from trimtab.api.quantity import GIB
from trimtab.errors import TrimtabError
from trimtab.lab.simulator.metrics import ClusterMetrics
from trimtab.lab.simulator.physics import Floats
from trimtab.lab.simulator.scenario import NodePool, Scenario, WorkloadSpec
from trimtab.lab.simulator.simulated_informers import build_namespace_labels
from trimtab.lab.simulator.simulation import Simulation
from trimtab.prices import CPU_HOUR, GIB_HOUR, MONTH_HOURS
from trimtab.recommender.workload import strategy_spec_from_policy
from trimtab.sizing.strategy import STRATEGIES
from trimtab.yaml_documents import load_yaml_documents

NONE = "none"
PolicySpecs = Mapping[str, OptimizationPolicySpec]


def load_policies(policy_name: str) -> PolicySpecs:
    """Parse a contender: `none`, the name of a strategy, or the file of an OptimizationPolicy."""
    if policy_name == NONE:
        return {}
    if policy_name.endswith((".yaml", ".yml", ".json")):
        return _read_policies(Path(policy_name))
    STRATEGIES.load_type(policy_name)
    return {
        policy_name: OptimizationPolicySpec(
            mode=PolicyMode.AUTO,
            strategy=StrategyChoice(name=policy_name),
            update_strategy=UpdateStrategy(allow_recreate=True),
            reconciliation_interval=Duration.parse("30m"),
        )
    }


def _read_policies(path: Path) -> PolicySpecs:
    try:
        documents = [found for found in load_yaml_documents(path.read_text()) if found]
    except OSError as error:
        raise TrimtabError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TrimtabError(f"{path}: is not valid YAML: {' '.join(str(error).split())}") from None
    if not documents:
        raise TrimtabError(f"{path}: the file has no OptimizationPolicy")
    read = [OptimizationPolicy.read(document, origin=str(path)) for document in documents]
    return {
        f"{path.stem}-{place}": _use_simulated_source(policy.spec, path) for place, policy in enumerate(read)
    }


def _use_simulated_source(spec: OptimizationPolicySpec, path: Path) -> OptimizationPolicySpec:
    """Return the policy with the one usage source of a simulated cluster, whatever source it names."""
    sizing = strategy_spec_from_policy(spec)
    try:
        STRATEGIES.parse_settings(sizing.strategy, sizing.decode_settings())
    except TrimtabError as error:
        raise TrimtabError(f"{path}: spec.strategy: {error}") from None
    config = spec.metrics_config.model_copy(update={"provider": None})
    return spec.model_copy(update={"metrics_config": config})


def require_matching_workloads(policy_name: str, scenario: Scenario) -> None:
    """Reject a policy that selects no workload of the simulated cluster: its column would equal that of `none`."""
    policies = load_policies(policy_name).values()
    if policies and not any(
        _is_selected(spec, workload) for spec in policies for workload in scenario.workloads
    ):
        namespaces = ", ".join(sorted({workload.namespace for workload in scenario.workloads}))
        raise TrimtabError(
            f"{policy_name}: the policy selects no workload; the simulated namespaces are {namespaces}, and have no labels"
        )


def _is_selected(spec: OptimizationPolicySpec, workload: WorkloadSpec) -> bool:
    return spec.selector.matches(
        kind=workload.kind,
        namespace=workload.namespace,
        labels=workload.labels,
        namespace_labels=build_namespace_labels(workload.namespace),
    )


@dataclass(slots=True)
class PolicyRun:
    """The run of one policy over time; harm and cost are counted after `counted_from`."""

    policy_name: str
    pool: NodePool
    counted_from: float
    history: list[ClusterMetrics] = field(default_factory=list)
    event_counts: Counter[str] = field(default_factory=Counter)

    def record(self, metrics: ClusterMetrics) -> None:
        self.history.append(metrics)
        if metrics.at > self.counted_from:
            self.event_counts.update(
                each.reason for each in metrics.events if each.pod or each.reason != "Resized"
            )

    def metric_series(self, name: str, *, counted: bool = False) -> Floats:
        """Return one metric over all steps, or over those that count."""
        chosen = (each for each in self.history if not counted or each.at > self.counted_from)
        return np.array([getattr(each, name) for each in chosen], np.float64)

    @property
    def counted_days(self) -> float:
        """Return the days that count."""
        return max(self.history[-1].at - max(self.counted_from, self.history[0].at), 1.0) / 86400

    def summary(self) -> dict[str, float]:
        """Return the metrics of the run as numbers: means over time, except counts and shares."""

        def total(name: str) -> float:
            return float(self.metric_series(name, counted=True).sum())

        def mean(name: str) -> float:
            return float(self.metric_series(name, counted=True).mean())

        node = MONTH_HOURS * (CPU_HOUR * self.pool.cpu + GIB_HOUR * self.pool.memory / GIB)
        used, slack, requested = total("cpu_used"), total("cpu_slack"), total("cpu_requested")
        throttled = self.metric_series("throttled", counted=True) * self.metric_series(
            "cpu_used", counted=True
        )
        return {
            "nodes": mean("nodes"),
            "nodes_needed": mean("nodes_needed"),
            "cpu_slack": _share(slack, requested),
            # What is used and not requested follows: requests less slack are what is used within them.
            "over_request": _share(max(used - (requested - slack), 0.0), used),
            "memory_slack": _share(total("memory_slack"), total("memory_requested")),
            "ooms": total("kills"),
            "evictions": float(self.event_counts["Evicted"]),
            "throttled": _share(float(throttled.sum()), used),
            "starved": _share(total("cpu_starved"), used + total("cpu_starved")),
            "slo_missed": _share(total("slow"), total("services")),
            "pending": mean("pending"),
            "changes_day": self.event_counts["Resizing"] / self.counted_days,
            "reverted": float(self.event_counts["Reverted"]),
            "dollars_month": mean("dollars_month"),
            "node_dollars_month": mean("nodes") * node,
        }


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


async def run_policy(
    scenario: Scenario,
    policy_name: str,
    *,
    days: float,
    warm_up: float,
    seed: int = 0,
    on_progress: Callable[[float], None] = lambda _: None,
) -> PolicyRun:
    """Run the cluster under a contender for some days; `advance` is called with the share that is done."""
    async with Simulation(
        scenario, policies=load_policies(policy_name), seed=seed, autoscale=True
    ) as simulation:
        run = PolicyRun(policy_name, scenario.pools[0], counted_from=simulation.world.start + warm_up)
        simulation.subscribe(run.record)
        steps = round(days * 86400 / simulation.step)
        for done in range(1, steps + 1):
            await simulation.run(simulation.step)
            if done % 12 == 0 or done == steps:
                on_progress(done / steps)
    return run
