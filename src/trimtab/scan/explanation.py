"""One workload in full: what was seen of it, how each number came about, and how the strategies fare on its own past."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.lab.backtest import BacktestSchedule
from trimtab.lab.job import ORACLE, BacktestJob
from trimtab.lab.scores import REQUEST, SAMPLES, Scores
from trimtab.plural import format_time_span
from trimtab.scan.model import ContainerFinding, ScanResult, WorkloadFinding
from trimtab.scan.pricing import ResourcePrices
from trimtab.sizing.proposal import describe_settings
from trimtab.sizing.recommendation import Factor
from trimtab.usage.aggregation import max_over_replicas
from trimtab.usage.pod_ownership import PodOwnerIndex
from trimtab.usage.trace import Floats, Trace
from trimtab.usage.usage import Usage

PEERS = ("trimtab", "vpa", "krr")


@dataclass(slots=True)
class UsageRecorder:
    """What containers of one workload used, gathered while a survey reads; of replicas the one that used most."""

    name: str = ""
    namespace: str = ""
    step: float = 0.0
    start: float = 0.0
    _parts: list[tuple[int, dict[tuple[str, str], tuple[Floats, Floats]]]] = field(default_factory=list)

    def select_workload(self, workloads: Sequence[Workload]) -> None:
        """Gather the usage of the workload that was chosen; it may be the owner of the one that was named."""
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
        """All of it, a column a container; others of another kind may have the same name."""
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
    """How one strategy would have done with one container."""

    strategy: str
    scores: Scores

    def cost(self, prices: ResourcePrices, *, pods: float) -> float:
        """What it would have asked for on average, of so many pods, as money a month."""
        cpu, memory = (
            float(sums[0, REQUEST] / sums[0, SAMPLES]) if sums[0, SAMPLES] else 0.0
            for sums in self.scores.sums
        )
        return pods * (prices.price_cpu(cpu * 1000) + prices.price_memory(memory))


@dataclass(frozen=True, slots=True)
class ContainerExplanation:
    """One container in full."""

    container: ContainerFinding
    trace: Trace
    backtests: tuple[StrategyBacktest, ...]
    """On its own history; empty where that is too short to say."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """One workload in full."""

    scan: ScanResult
    workload: WorkloadFinding
    containers: tuple[ContainerExplanation, ...]

    @property
    def key(self) -> WorkloadKey:
        return self.workload.key

    @property
    def facts(self) -> tuple[Factor, ...]:
        """What holds for every number here."""
        survey = self.scan
        return (
            Factor(
                "window",
                f"{format_time_span(survey.window)}, a sample every {survey.step:g} s",
                "--days and --step",
            ),
            describe_settings(survey.strategy, survey.settings),
        )

    def price_backtest(self, backtest: StrategyBacktest) -> float:
        """What a strategy would have asked for on average, of all pods, as money a month."""
        return backtest.cost(self.scan.prices, pods=self.workload.instances)


def explain(scan: ScanResult, past: UsageRecorder) -> Explanation:
    """Of a survey that found one workload, and the past that was heard with it."""
    (workload,) = scan.workloads
    names = [each.name for each in workload.containers]
    trace = past.build_trace(workload.key.kind, names)
    containers = []
    for place, each in enumerate(workload.containers):
        own = trim_start(trace.select_columns(np.array([place], np.intp)))
        containers.append(ContainerExplanation(each, own, _backtest_default_policy(own, scan)))
    return Explanation(scan, workload, tuple(containers))


def _backtest_default_policy(trace: Trace, scan: ScanResult) -> tuple[StrategyBacktest, ...]:
    """Under the policy that a survey speaks for, which says nothing of its own."""
    kept = OptimizationPolicySpec().changes.stabilization.seconds
    return backtest_strategies(trace, scan.strategy, scan.settings, stabilization=kept)


def trim_start(trace: Trace) -> Trace:
    """From its first sample on."""
    seen = np.flatnonzero(~(np.isnan(trace.cpu) & np.isnan(trace.memory)).all(axis=1))
    first = int(seen[0]) if len(seen) else 0
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
    """How a strategy with its settings, and its peers, would have done with one container; empty where its past is short."""
    schedule = BacktestSchedule(stabilization=stabilization)
    found = []
    for name in (*dict.fromkeys((strategy, *PEERS)), ORACLE):
        scores = BacktestJob(trace.names[0], name, settings if name == strategy else {}).compute_scores(
            trace, schedule
        )
        if scores.containers:
            found.append(StrategyBacktest(name, scores))
    return tuple(found)
