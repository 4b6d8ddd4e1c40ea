"""Export what workloads request and use, what is recommended for them, the monthly cost of each, and savings.

By namespace and policy, and by workload where the configuration asks for it. The difference of the costs of requests and of
recommendations is what can be saved; what changes saved is from the ledger (`savings`). A container without a recommendation
counts with what it requests. Cores and bytes are those of the pods that run now, costs those of the time in which batch
workloads run. Used is the usage of the busiest replica, for each of them: what the requests have to cover.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest
from typing import NamedTuple

from prometheus_client import Gauge

from trimtab.api.meta import Document
from trimtab.api.quantity import GIB
from trimtab.kube.kinds.nodes import Node
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.operator.config.model import PriceSettings
from trimtab.operator.metrics import Metrics
from trimtab.operator.node_prices import NodePrices
from trimtab.operator.paid_pods import count_paid_pods_of_view
from trimtab.operator.savings import SavingsLedger
from trimtab.operator.views import SavingsSummary, WorkloadView
from trimtab.prices import MONTH_HOURS
from trimtab.recommender.cohort import LatestUsage
from trimtab.usage.pod_ownership import WorkloadContainer

REQUESTED, RECOMMENDED, USED = "requested", "recommended", "used"
POSSIBLE, REALISED = "possible", "realised"
SAVED = "saved"
"""The savings of changes in the status of a policy."""
FindUsage = Callable[[WorkloadContainer], LatestUsage | None]


class Amounts(NamedTuple):
    """Cores and bytes."""

    cpu: float = 0.0
    memory: float = 0.0

    def cost(self, prices: PriceSettings) -> float:
        """Return the cost of a month."""
        return MONTH_HOURS * prices.paid_share * (prices.cpu * self.cpu + prices.memory * self.memory / GIB)


class _WorkloadAmounts(NamedTuple):
    """The amounts of a workload, by kind, of each of its pods."""

    per_pod: Mapping[str, Amounts]
    running: int
    """The number of pods that run now."""
    paid: float
    """The number of pods that are paid for."""


class _Sums:
    """Sums of amounts over workloads, by kind."""

    def __init__(self) -> None:
        self._cpu: defaultdict[str, float] = defaultdict(float)
        self._memory: defaultdict[str, float] = defaultdict(float)

    def add(self, per_pod: Mapping[str, Amounts], pods: float) -> None:
        for kind, (cpu, memory) in per_pod.items():
            self._cpu[kind] += cpu * pods
            self._memory[kind] += memory * pods

    @property
    def by_kind(self) -> dict[str, Amounts]:
        return {kind: Amounts(cpu, self._memory[kind]) for kind, cpu in self._cpu.items()}


class _Money:
    """The costs of a month by kind, and the savings, of the pods that are paid for."""

    def __init__(self, paid: Mapping[str, Amounts], prices: PriceSettings) -> None:
        costs = {kind: amounts.cost(prices) for kind, amounts in paid.items()}
        realised = costs.pop(SAVED, 0.0)
        self.costs = costs
        self.savings = {POSSIBLE: costs[REQUESTED] - costs[RECOMMENDED], REALISED: realised}


class _Series:
    """The series of a gauge. Those that an update sets again are kept: to create one costs more than all else here."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._values: dict[tuple[str, ...], float] = {}
        # A session that ended without an orderly end has left its own.
        gauge.clear()

    def replace(self, values: dict[tuple[str, ...], float]) -> None:
        """Have these series with these values, and no others."""
        known, self._values = self._values, values
        for labels in known.keys() - values.keys():
            self._gauge.remove(*labels)
        for labels, value in values.items():
            if known.get(labels) != value:
                self._gauge.labels(*labels).set(value)


class CostGauges:
    """The gauges of requests, recommendations, usage, their costs, and savings."""

    def __init__(
        self, metrics: Metrics, node_prices: NodePrices, ledger: SavingsLedger | None = None
    ) -> None:
        self._ledger = ledger or SavingsLedger()
        self._summary = SavingsSummary()
        self._node_prices = node_prices
        self._by_policy: dict[str, Document] = {}
        self._nodes = _Series(metrics.node_cost_per_month)
        self._cpu = _Series(metrics.cpu_cores)
        self._memory = _Series(metrics.memory_bytes)
        self._cost = _Series(metrics.cost_per_month)
        self._savings = _Series(metrics.savings_per_month)
        self._saved = _Series(metrics.savings)
        self._workload_cost = _Series(metrics.workload_cost_per_month)
        self._workload_savings = _Series(metrics.workload_savings_per_month)

    def update(
        self,
        views: Iterable[WorkloadView],
        prices: PriceSettings,
        *,
        now: float,
        nodes: Iterable[Node] = (),
        usage: FindUsage = lambda _: None,
    ) -> set[str]:
        """Set the gauges to these nodes, and to the workloads of these views that a policy selects.

        Return the policies whose cost is another since the last update.
        """
        costs_by_type = self._node_prices.sum_by_instance_type(nodes)
        self._nodes.replace({(each,): cost for each, cost in costs_by_type.items()})
        by_workload: list[tuple[WorkloadKey, str, _WorkloadAmounts]] = []
        existing: list[WorkloadKey] = []
        running: defaultdict[tuple[str, str], _Sums] = defaultdict(_Sums)
        paid: defaultdict[tuple[str, str], _Sums] = defaultdict(_Sums)
        for view in views:
            key = view.workload.key
            existing.append(key)
            if view.policy is not None:
                found = _sum_workload(view, key, self._ledger, usage, now=now)
                by_workload.append((key, view.policy.name, found))
                labels = key.namespace, view.policy.name
                running[labels].add(found.per_pod, found.running)
                paid[labels].add(found.per_pod, found.paid)
        money = {labels: _Money(sums.by_kind, prices) for labels, sums in paid.items()}
        realised = {labels: each.savings[REALISED] for labels, each in money.items()}
        realised = {labels: each for labels, each in realised.items() if math.isfinite(each)}
        self._ledger.add(realised, existing, now=now)
        self._summary = SavingsSummary(sum(realised.values()), self._ledger.total, self._ledger.since)
        self._saved.replace({labels: self._ledger.saved(*labels) for labels in money})
        self._set_amounts({labels: sums.by_kind for labels, sums in running.items()})
        self._cost.replace(_finite({labels: each.costs for labels, each in money.items()}))
        self._savings.replace(_finite({labels: each.savings for labels, each in money.items()}))
        self._set_workloads(by_workload, prices)
        return self._set_policy_costs(money, prices)

    @property
    def savings(self) -> SavingsSummary:
        """The savings of the cluster, as of the last update."""
        return self._summary

    def monthly_cost(self, policy: str) -> Document | None:
        """Return the cost of the workloads of a policy, for its status; None if it is unknown."""
        return self._by_policy.get(policy)

    def _set_amounts(self, running: Mapping[tuple[str, str], Mapping[str, Amounts]]) -> None:
        amounts = {
            (*labels, kind): each
            for labels, by_kind in running.items()
            for kind, each in by_kind.items()
            if kind != SAVED
        }
        self._cpu.replace({labels: each.cpu for labels, each in amounts.items()})
        self._memory.replace({labels: each.memory for labels, each in amounts.items()})

    def _set_workloads(
        self, by_workload: Iterable[tuple[WorkloadKey, str, _WorkloadAmounts]], prices: PriceSettings
    ) -> None:
        """Set the gauges of the most expensive workloads, as many as the configuration asks for."""
        known = (
            (_workload_money(found, prices), (key.namespace, policy, key.kind, key.name))
            for key, policy, found in by_workload
        )
        finite = (each for each in known if all(map(math.isfinite, each[0].costs.values())))
        dearest = nlargest(prices.workloads, finite, key=lambda each: each[0].costs[REQUESTED])
        self._workload_cost.replace(_finite({labels: money.costs for money, labels in dearest}))
        self._workload_savings.replace(_finite({labels: money.savings for money, labels in dearest}))

    def _set_policy_costs(self, money: Mapping[tuple[str, str], _Money], prices: PriceSettings) -> set[str]:
        costs: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        for (_, policy), each in money.items():
            # Usage is another in every cycle, and would write the status each time.
            costs[policy][REQUESTED] += each.costs[REQUESTED]
            costs[policy][RECOMMENDED] += each.costs[RECOMMENDED]
            costs[policy][SAVED] += each.savings[REALISED]
        # In full, each pod that an autoscaler adds would write the status.
        now: dict[str, Document] = {
            policy: {
                **{kind: float(f"{cost:.3g}") for kind, cost in each.items() if kind != SAVED or cost},
                "currency": prices.currency,
            }
            for policy, each in costs.items()
            if all(map(math.isfinite, each.values()))  # no JSON has others
        }
        before, self._by_policy = self._by_policy, now
        return {policy for policy in before.keys() | now.keys() if before.get(policy) != now.get(policy)}

    def clear(self) -> None:
        """Remove all series."""
        for series in (
            self._nodes,
            self._cpu,
            self._memory,
            self._cost,
            self._savings,
            self._saved,
            self._workload_cost,
            self._workload_savings,
        ):
            series.replace({})


def _finite(
    amounts: Mapping[tuple[str, ...], Mapping[str, float]],
) -> dict[tuple[str, ...], float]:
    """Return the values of series by their labels, the kind last, without those that are no number."""
    return {
        (*labels, kind): amount
        for labels, by_kind in amounts.items()
        for kind, amount in by_kind.items()
        if math.isfinite(amount)
    }


def _workload_money(found: _WorkloadAmounts, prices: PriceSettings) -> _Money:
    sums = _Sums()
    sums.add(found.per_pod, found.paid)
    return _Money(sums.by_kind, prices)


def _sum_workload(
    view: WorkloadView, key: WorkloadKey, ledger: SavingsLedger, usage: FindUsage, *, now: float
) -> _WorkloadAmounts:
    """Sum up the containers of a workload, for each of its pods."""
    containers = [each for each in view.containers if each.role != "init"]
    requested, targets = view.paid_containers, _recommended_sizes(view)
    per_pod = {
        REQUESTED: _sum_requests([each.resources for each in requested]),
        RECOMMENDED: _sum_requests([targets.get(each.name, each.resources) for each in requested]),
        SAVED: Amounts(*ledger.saved_requests(key, containers)),
    }
    known = [usage(WorkloadContainer.from_workload(key, each.name)) for each in containers]
    found = [each for each in known if each is not None]
    cpu, memory = (
        [each for each in amounts if not math.isnan(each)]
        for amounts in ([each.cpu for each in found], [each.memory for each in found])
    )
    if cpu or memory:
        per_pod[USED] = Amounts(sum(cpu), sum(memory))
    return _WorkloadAmounts(per_pod, len(view.pods), count_paid_pods_of_view(view, now=now))


def _sum_requests(sizes: Iterable[Resources]) -> Amounts:
    cpu = memory = 0
    for size in sizes:
        requests = size.with_implied_requests()
        cpu += requests.cpu_request or 0
        memory += requests.memory_request or 0
    return Amounts(cpu / 1000, memory)


def _recommended_sizes(view: WorkloadView) -> Mapping[str, Resources]:
    recommendations = view.outcome.recommendations if view.outcome else ()
    return {each.container: each.target for each in recommendations if each.no_change_reason is None}
