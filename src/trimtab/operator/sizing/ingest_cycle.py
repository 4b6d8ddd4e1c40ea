"""A turn: usage is read for all that are to be sized, what is known of them goes on, and recommendations are judged.

Between two turns nothing is learned, and what stands around workloads is taken to be as it was at the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from functools import cache

from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.operator.cluster_state import Catalog, containers_of, containers_per_pod, running, running_since
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.resolver import Orders
from trimtab.operator.policy.status_writer import Statuses
from trimtab.operator.vpa.recommender import DropIn
from trimtab.recommender.cluster_constraints import Neighbourhood, largest_machine
from trimtab.recommender.cohort import Used
from trimtab.recommender.cohort_manager import Want
from trimtab.recommender.recommender import Learning
from trimtab.sizing.recommendation import Recommendation
from trimtab.usage.pod_ownership import WorkloadContainer


def compare(
    recommendations: Iterable[Recommendation],
    used: Callable[[str], Used | None],
    *,
    policy: str,
    metrics: Metrics,
) -> None:
    """Hold the containers of a workload against what is recommended for them; `used` knows one by its name."""
    for each in recommendations:
        found = used(each.container) if each.held is None else None
        if found is None:
            continue
        shares = {
            "cpu": (found.cpu * 1000, each.target.cpu_request),
            "memory": (found.memory, each.target.memory_request),
        }
        for resource, (amount, recommended) in shares.items():
            if recommended and not math.isnan(amount):
                metrics.usage_ratio.labels(policy, resource).observe(amount / recommended)


class Turns:
    """Turn after turn, over all workloads of a cluster."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        orders: Orders,
        learning: Learning,
        statuses: Statuses,
        vpas: DropIn,
        look_again: Callable[[WorkloadKey], None],
        metrics: Metrics,
        intent_targets: Callable[[], AbstractSet[WorkloadKey]] = frozenset,
    ) -> None:
        """`intent_targets` are workloads that are learned of though no policy may select them: an Intent controls them."""
        self._catalog = catalog
        self._orders = orders
        self._learning = learning
        self._statuses = statuses
        self._vpas = vpas
        self._intent_targets = intent_targets
        self._look_again = look_again
        self._metrics = metrics
        self.neighbourhood = Neighbourhood()
        """What stood around workloads at the last turn."""

    async def take(self, now: float) -> None:
        """Read usage up to now, and learn from it."""
        catalog = self._catalog
        self._orders.forget_gone()
        self._metrics.there_are("policy", {str(policy) for policy in catalog.policies})
        self._metrics.there_are("namespace", {each.name for each in catalog.namespaces})
        workloads = list(catalog.workloads())
        self.neighbourhood = Neighbourhood(
            nodes=catalog.nodes,
            daemon_sets=(each for each in workloads if each.kind == "DaemonSet"),
            limit_ranges=catalog.limit_ranges,
            quotas=catalog.quotas,
        )
        asked = self._vpas.targets() | self._intent_targets()
        wanted: dict[WorkloadContainer, Want] = {}
        for workload in workloads:
            if sizing := self._orders.sizing(self._orders.of(workload), asked=workload.key in asked):
                want = Want(sizing, workload.created, containers_per_pod(catalog.pods_of(workload), workload))
                wanted |= dict.fromkeys(containers_of(catalog, workload), want)
        before = self._learning.troubles, self._learning.unsampled
        new = await self._learning.advance(
            now,
            wanted=wanted,
            owners=cache(catalog.owners),
            running=running(catalog),
            pods=running_since(catalog.pods),
            machine=largest_machine(catalog.nodes),
        )
        for key in {name.workload for name in new}:
            self._look_again(key)
        if (self._learning.troubles, self._learning.unsampled) != before:
            for policy in catalog.policies:
                self._statuses.look_again(policy.key)
        for workload in workloads:
            self._compare(workload)

    def _compare(self, workload: Workload) -> None:
        """Hold what was used against what had been recommended."""
        mandate, outcome = self._orders.of(workload), self._statuses.outcome(workload.key)
        if mandate is None or outcome is None or self._learning.of(mandate.sizing).trouble:
            return
        sizing = mandate.sizing

        def used(container: str) -> Used | None:
            return self._learning.used(WorkloadContainer.of(workload.key, container), sizing)

        compare(outcome.recommendations, used, policy=mandate.name, metrics=self._metrics)
