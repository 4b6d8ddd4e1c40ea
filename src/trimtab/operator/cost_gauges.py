"""Export what workloads request, what is recommended for them, and the monthly cost of both, by namespace and policy.

The difference of both costs is what the recommendations can save. A container without a recommendation counts with what
it requests. Cores and bytes are those of the pods that run now, costs those of the time in which batch workloads run.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trimtab.api.meta import Document
from trimtab.api.quantity import GIB
from trimtab.kube.kinds.nodes import Node
from trimtab.kube.kinds.pods import Container, Resources
from trimtab.operator.config.model import PriceSettings
from trimtab.operator.metrics import Metrics
from trimtab.operator.node_prices import NodePrices
from trimtab.operator.paid_pods import count_paid_pods_of_view
from trimtab.operator.views import WorkloadView
from trimtab.prices import MONTH_HOURS


@dataclass(slots=True)
class _Totals:
    """The sums of requests, in cores and bytes."""

    cpu: float = 0.0
    memory: float = 0.0
    paid_cpu: float = 0.0
    """The cores that are paid for; `paid_memory` is the same of bytes."""
    paid_memory: float = 0.0

    def add(self, size: Resources, pods: int, paid_pods: float) -> None:
        requests = size.with_implied_requests()
        cpu, memory = (requests.cpu_request or 0) / 1000, requests.memory_request or 0
        self.cpu += pods * cpu
        self.memory += pods * memory
        self.paid_cpu += paid_pods * cpu
        self.paid_memory += paid_pods * memory

    def cost(self, prices: PriceSettings) -> float:
        """Return the cost of a month."""
        return (
            MONTH_HOURS
            * prices.paid_share
            * (prices.cpu * self.paid_cpu + prices.memory * self.paid_memory / GIB)
        )


class CostGauges:
    """The gauges of requests, recommendations and their costs."""

    def __init__(self, metrics: Metrics, node_prices: NodePrices) -> None:
        self._node_prices = node_prices
        self._nodes = metrics.node_cost_per_month
        self._by_policy: dict[str, Document] = {}
        self._cpu = metrics.cpu_cores
        self._memory = metrics.memory_bytes
        self._cost = metrics.cost_per_month

    def update(
        self, views: Iterable[WorkloadView], prices: PriceSettings, *, now: float, nodes: Iterable[Node] = ()
    ) -> set[str]:
        """Set the gauges to these nodes, and to the workloads of these views that a policy selects.

        Return the policies whose cost is another since the last update.
        """
        self.clear()
        for instance_type, cost in self._node_prices.sum_by_instance_type(nodes).items():
            self._nodes.labels(instance_type).set(cost)
        totals: defaultdict[tuple[str, str, str], _Totals] = defaultdict(_Totals)
        for view in views:
            if view.policy is None:
                continue
            targets, paid = _recommended_sizes(view), count_paid_pods_of_view(view, now=now)
            for container in _running_containers(view.containers):
                labels = view.workload.namespace, view.policy.name
                totals[(*labels, "requested")].add(container.resources, len(view.pods), paid)
                size = targets.get(container.name, container.resources)
                totals[(*labels, "recommended")].add(size, len(view.pods), paid)
        for names, found in totals.items():
            self._cpu.labels(*names).set(found.cpu)
            self._memory.labels(*names).set(found.memory)
            if math.isfinite(cost := found.cost(prices)):
                self._cost.labels(*names).set(cost)
        return self._set_policy_costs(totals, prices)

    def monthly_cost(self, policy: str) -> Document | None:
        """Return the cost of the workloads of a policy, for its status; None if it is unknown."""
        return self._by_policy.get(policy)

    def _set_policy_costs(
        self, totals: Mapping[tuple[str, str, str], _Totals], prices: PriceSettings
    ) -> set[str]:
        costs: dict[str, dict[str, float]] = {}
        for (_, policy, kind), found in totals.items():
            cost = costs.setdefault(policy, {})
            cost[kind] = cost.get(kind, 0.0) + found.cost(prices)
        # In full, each pod that an autoscaler adds would write the status.
        now: dict[str, Document] = {
            policy: {
                **{kind: float(f"{cost:.3g}") for kind, cost in each.items()},
                "currency": prices.currency,
            }
            for policy, each in costs.items()
            if all(map(math.isfinite, each.values()))  # no JSON has others
        }
        before, self._by_policy = self._by_policy, now
        return {policy for policy in before.keys() | now.keys() if before.get(policy) != now.get(policy)}

    def clear(self) -> None:
        """Remove all series."""
        for gauge in (self._cpu, self._memory, self._cost, self._nodes):
            gauge.clear()


def _running_containers(containers: Iterable[Container]) -> Iterable[Container]:
    return (each for each in containers if each.role != "init")


def _recommended_sizes(view: WorkloadView) -> Mapping[str, Resources]:
    recommendations = view.outcome.recommendations if view.outcome else ()
    return {each.container: each.target for each in recommendations if each.no_change_reason is None}
