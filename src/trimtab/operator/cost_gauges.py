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
from dataclasses import dataclass, field
from heapq import nlargest
from typing import NamedTuple

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

    def times(self, factor: float) -> Amounts:
        return Amounts(self.cpu * factor, self.memory * factor)

    def plus(self, other: Amounts) -> Amounts:
        return Amounts(self.cpu + other.cpu, self.memory + other.memory)

    def cost(self, prices: PriceSettings) -> float:
        """Return the cost of a month."""
        return MONTH_HOURS * prices.paid_share * (prices.cpu * self.cpu + prices.memory * self.memory / GIB)


@dataclass(slots=True)
class _Totals:
    """The sums over workloads, by kind."""

    running: dict[str, Amounts] = field(default_factory=dict)
    """Of the pods that run now."""
    paid: dict[str, Amounts] = field(default_factory=dict)
    """Of the pods that are paid for."""
    saved: Amounts = field(default_factory=Amounts)
    """What changes took away, of the pods that are paid for."""

    def add(self, other: _Totals) -> None:
        for mine, theirs in ((self.running, other.running), (self.paid, other.paid)):
            for kind, amounts in theirs.items():
                mine[kind] = mine.get(kind, Amounts()).plus(amounts)
        self.saved = self.saved.plus(other.saved)

    def costs(self, prices: PriceSettings) -> dict[str, float]:
        return {kind: amounts.cost(prices) for kind, amounts in self.paid.items()}

    def savings(self, prices: PriceSettings) -> dict[str, float]:
        costs = self.costs(prices)
        return {
            POSSIBLE: costs.get(REQUESTED, 0.0) - costs.get(RECOMMENDED, 0.0),
            REALISED: self.saved.cost(prices),
        }


class CostGauges:
    """The gauges of requests, recommendations, usage, their costs, and savings."""

    def __init__(
        self, metrics: Metrics, node_prices: NodePrices, ledger: SavingsLedger | None = None
    ) -> None:
        self._ledger = ledger or SavingsLedger()
        self._summary = SavingsSummary()
        self._node_prices = node_prices
        self._nodes = metrics.node_cost_per_month
        self._by_policy: dict[str, Document] = {}
        self._cpu = metrics.cpu_cores
        self._memory = metrics.memory_bytes
        self._cost = metrics.cost_per_month
        self._savings = metrics.savings_per_month
        self._saved = metrics.savings
        self._workload_cost = metrics.workload_cost_per_month
        self._workload_savings = metrics.workload_savings_per_month

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
        self.clear()
        for instance_type, cost in self._node_prices.sum_by_instance_type(nodes).items():
            self._nodes.labels(instance_type).set(cost)
        by_workload: list[tuple[WorkloadKey, str, _Totals]] = []
        existing: list[WorkloadKey] = []
        for view in views:
            existing.append(view.workload.key)
            if view.policy is not None:
                found = _sum_workload(view, self._ledger, usage, now=now)
                by_workload.append((view.workload.key, view.policy.name, found))
        totals: defaultdict[tuple[str, str], _Totals] = defaultdict(_Totals)
        for key, policy, each in by_workload:
            totals[key.namespace, policy].add(each)
        realised = {labels: found.savings(prices)[REALISED] for labels, found in totals.items()}
        realised = {labels: each for labels, each in realised.items() if math.isfinite(each)}
        self._ledger.add(realised, existing, now=now)
        self._summary = SavingsSummary(sum(realised.values()), self._ledger.total, self._ledger.since)
        for labels, found in totals.items():
            self._set_totals(labels, found, prices)
            self._saved.labels(*labels).set(self._ledger.saved(*labels))
        self._set_workloads(by_workload, prices)
        return self._set_policy_costs(totals, prices)

    @property
    def savings(self) -> SavingsSummary:
        """The savings of the cluster, as of the last update."""
        return self._summary

    def monthly_cost(self, policy: str) -> Document | None:
        """Return the cost of the workloads of a policy, for its status; None if it is unknown."""
        return self._by_policy.get(policy)

    def _set_totals(self, labels: tuple[str, str], found: _Totals, prices: PriceSettings) -> None:
        for kind, amounts in found.running.items():
            self._cpu.labels(*labels, kind).set(amounts.cpu)
            self._memory.labels(*labels, kind).set(amounts.memory)
        for gauge, money in ((self._cost, found.costs(prices)), (self._savings, found.savings(prices))):
            for kind, amount in money.items():
                if math.isfinite(amount):
                    gauge.labels(*labels, kind).set(amount)

    def _set_workloads(
        self, by_workload: Iterable[tuple[WorkloadKey, str, _Totals]], prices: PriceSettings
    ) -> None:
        """Set the gauges of the most expensive workloads, as many as the configuration asks for."""
        known = ((found.costs(prices), key, policy, found) for key, policy, found in by_workload)
        finite = (each for each in known if all(map(math.isfinite, each[0].values())))
        dearest = nlargest(prices.workloads, finite, key=lambda each: each[0].get(REQUESTED, 0.0))
        for costs, key, policy, found in dearest:
            labels = key.namespace, policy, key.kind, key.name
            for kind, amount in costs.items():
                self._workload_cost.labels(*labels, kind).set(amount)
            for kind, amount in found.savings(prices).items():
                self._workload_savings.labels(*labels, kind).set(amount)

    def _set_policy_costs(self, totals: Mapping[tuple[str, str], _Totals], prices: PriceSettings) -> set[str]:
        costs: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        for (_, policy), found in totals.items():
            money = found.costs(prices)
            # Usage is another in every cycle, and would write the status each time.
            costs[policy][REQUESTED] += money.get(REQUESTED, 0.0)
            costs[policy][RECOMMENDED] += money.get(RECOMMENDED, 0.0)
            costs[policy][SAVED] += found.savings(prices)[REALISED]
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
        for gauge in (
            self._cpu,
            self._memory,
            self._cost,
            self._nodes,
            self._savings,
            self._saved,
            self._workload_cost,
            self._workload_savings,
        ):
            gauge.clear()


def _sum_workload(view: WorkloadView, ledger: SavingsLedger, usage: FindUsage, *, now: float) -> _Totals:
    """Sum up the containers of a workload, for the pods that run and for those that are paid for."""
    containers = [each for each in view.containers if each.role != "init"]
    targets, paid = _recommended_sizes(view), count_paid_pods_of_view(view, now=now)
    names = (WorkloadContainer.from_workload(view.workload.key, each.name) for each in containers)
    one = {
        REQUESTED: _sum_amounts(_requested(each.resources) for each in containers),
        RECOMMENDED: _sum_amounts(_requested(targets.get(each.name, each.resources)) for each in containers),
    }
    found = [each for name in names if (each := usage(name)) is not None]
    if not all(math.isnan(amount) for each in found for amount in each):
        one[USED] = _sum_amounts(Amounts(*map(_or_nothing, each)) for each in found)
    saved = Amounts(*ledger.saved_requests(view.workload.key, containers))
    return _Totals(
        running={kind: amounts.times(len(view.pods)) for kind, amounts in one.items()},
        paid={kind: amounts.times(paid) for kind, amounts in one.items()},
        saved=saved.times(paid),
    )


def _requested(size: Resources) -> Amounts:
    requests = size.with_implied_requests()
    return Amounts((requests.cpu_request or 0) / 1000, requests.memory_request or 0)


def _sum_amounts(amounts: Iterable[Amounts]) -> Amounts:
    total = Amounts()
    for each in amounts:
        total = total.plus(each)
    return total


def _or_nothing(amount: float) -> float:
    return 0.0 if math.isnan(amount) else amount


def _recommended_sizes(view: WorkloadView) -> Mapping[str, Resources]:
    recommendations = view.outcome.recommendations if view.outcome else ()
    return {each.container: each.target for each in recommendations if each.no_change_reason is None}
