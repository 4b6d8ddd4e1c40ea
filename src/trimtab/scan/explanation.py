"""Explain one workload in full: its usage, the factors of each number, and backtests on its own history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.api.optimizationpolicy import DEFAULT_STRATEGY, OptimizationPolicySpec, SizingGoal
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.lab.backtest import BacktestSchedule
from trimtab.lab.job import ORACLE, BacktestJob
from trimtab.lab.scores import REQUEST, SAMPLES, Scores
from trimtab.plural import format_time_span
from trimtab.scan.model import ContainerFinding, ScanResult, WorkloadFinding
from trimtab.scan.pricing import ResourcePrices
from trimtab.sizing.proposal import describe_settings, goal_settings
from trimtab.sizing.recommendation import Factor
from trimtab.sizing.strategies.trimtab import TrimtabSettings
from trimtab.usage.pod_ownership import PodOwnerIndex
from trimtab.usage.trace import Floats, Trace
from trimtab.usage.usage import Usage
from trimtab.usage.workload_usage import max_over_replicas

PEERS = ("trimtab", "vpa", "krr")
_DEFAULTS = TrimtabSettings()
TRIMTAB_RISKS = {"cpu_risk": _DEFAULTS.cpu_risk, "memory_risk": _DEFAULTS.memory_risk}
"""The risks of the default strategy, which a goal replaces."""


@dataclass(slots=True)
class UsageRecorder:
    """Records the usage of one workload's containers during a scan, taking the highest replica at each step."""

    name: str = ""
    namespace: str = ""
    step: float = 0.0
    start: float = 0.0
    _parts: list[tuple[int, dict[tuple[str, str], tuple[Floats, Floats]]]] = field(default_factory=list)

    def select_workload(self, workloads: Sequence[Workload]) -> None:
        """Record the selected workload, which may be the owner of the one that the user named."""
        for each in workloads[:1]:
            self.name, self.namespace = each.name, each.namespace

    def observe_usage(self, usage: Usage, owners: PodOwnerIndex) -> None:
        found = max_over_replicas(usage, owners)
        if not self._parts:
            self.start, self.step = usage.start, usage.step
        self._parts.append(
            (
                usage.steps,
                {
                    (name.kind, name.container): (found.cpu[:, place], found.memory[:, place])
                    for place, name in enumerate(found.containers)
                    if (name.name, name.namespace) == (self.name, self.namespace)
                },
            )
        )

    def build_trace(self, kind: str, containers: Sequence[str]) -> Trace:
        """Build a trace with one column per container; `kind` excludes namesakes of another kind."""
        grids = [np.full((sum(steps for steps, _ in self._parts), len(containers)), np.nan) for _ in range(2)]
        begin = 0
        for steps, columns in self._parts:
            for place, container in enumerate(containers):
                for grid, values in zip(grids, columns.get((kind, container), ()), strict=False):
                    grid[begin : begin + steps, place] = values
            begin += steps
        cpu, memory = grids
        return Trace(tuple(containers), start=self.start, step=self.step, cpu=cpu, memory=memory)


@dataclass(frozen=True, slots=True)
class StrategyBacktest:
    """The backtest of one strategy on one container."""

    strategy: str
    scores: Scores

    def cost(self, prices: ResourcePrices, *, pods: float) -> float:
        """Return the monthly cost of the mean requests for this number of pods."""
        cpu, memory = (
            float(sums[0, REQUEST] / sums[0, SAMPLES]) if sums[0, SAMPLES] else 0.0
            for sums in self.scores.sums
        )
        return pods * (prices.price_cpu(cpu * 1000) + prices.price_memory(memory))


@dataclass(frozen=True, slots=True)
class ContainerExplanation:
    """The full explanation of one container."""

    container: ContainerFinding
    trace: Trace
    backtests: tuple[StrategyBacktest, ...]
    """The backtests on the container's own history; empty if that is too short."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The full explanation of one workload."""

    scan: ScanResult
    workload: WorkloadFinding
    containers: tuple[ContainerExplanation, ...]

    @property
    def key(self) -> WorkloadKey:
        return self.workload.key

    @property
    def facts(self) -> tuple[Factor, ...]:
        """The factors that apply to every number."""
        scan = self.scan
        return (
            Factor(
                "window",
                f"{format_time_span(scan.window)}, a sample every {scan.step:g} s",
                "--days and --step",
            ),
            describe_settings(*_find_strategy(scan, self.workload)),
        )

    def price_backtest(self, backtest: StrategyBacktest) -> float:
        """Return the monthly cost of a strategy's mean requests for all pods."""
        return backtest.cost(self.scan.prices, pods=self.workload.instances)


def explain(scan: ScanResult, recorder: UsageRecorder) -> Explanation:
    """Explain the only workload of a scan, with the usage that was recorded during the scan."""
    (workload,) = scan.workloads
    names = [each.name for each in workload.containers]
    trace = recorder.build_trace(workload.key.kind, names)
    containers = []
    for place, each in enumerate(workload.containers):
        own = trim_start(trace.select_columns(np.array([place], np.intp)))
        containers.append(ContainerExplanation(each, own, _backtest_policy(own, scan, workload)))
    return Explanation(scan, workload, tuple(containers))


def _find_strategy(scan: ScanResult, workload: WorkloadFinding) -> tuple[str, Mapping[str, Any]]:
    """Return the strategy of a workload's policy, or else of the scan, with its settings."""
    policy = workload.policy
    return (policy.strategy, policy.settings) if policy else (scan.strategy, scan.settings)


def _backtest_policy(
    trace: Trace, scan: ScanResult, workload: WorkloadFinding
) -> tuple[StrategyBacktest, ...]:
    """Run the backtests under the workload's policy; without one, under the default policy."""
    policy, default = workload.policy, OptimizationPolicySpec().changes.stabilization.seconds
    stabilization = policy.stabilization if policy else default
    return backtest_strategies(trace, *_find_strategy(scan, workload), stabilization=stabilization)


def trim_start(trace: Trace) -> Trace:
    """Drop the steps before the first sample."""
    sampled = np.flatnonzero(~(np.isnan(trace.cpu) & np.isnan(trace.memory)).all(axis=1))
    first = int(sampled[0]) if len(sampled) else 0
    return Trace(
        trace.names,
        start=trace.start + first * trace.step,
        step=trace.step,
        cpu=trace.cpu[first:],
        memory=trace.memory[first:],
    )


def backtest_strategies(
    trace: Trace, strategy: str, settings: Mapping[str, Any], *, stabilization: float
) -> tuple[StrategyBacktest, ...]:
    """Backtest a strategy, each goal of the default strategy, and peers on one container.

    Strategies without enough history are omitted.
    """
    schedule = BacktestSchedule(stabilization=stabilization)
    runs: dict[str, tuple[str, Mapping[str, Any]]] = {strategy: (strategy, settings)}
    if strategy == DEFAULT_STRATEGY:
        for goal in SizingGoal:
            runs[f"goal {goal}"] = strategy, {**settings, **TRIMTAB_RISKS, **goal_settings(goal, goal)}
    for peer in (*PEERS, ORACLE):
        runs.setdefault(peer, (peer, {}))
    found = []
    for label, (name, chosen) in runs.items():
        scores = BacktestJob(trace.names[0], name, chosen).compute_scores(trace, schedule)
        if scores.containers:
            found.append(StrategyBacktest(label, scores))
    return tuple(found)
