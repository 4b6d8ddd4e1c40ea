"""The ingest cycle: read usage for all sized containers, feed the recommender, and compare usage with recommendations.

Between two cycles nothing is ingested, and the constraints of workloads are those of the last cycle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import cache

import structlog

from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.operator.cluster_state import (
    ClusterState,
    container_start_times,
    running_containers,
)
from trimtab.operator.cost_gauges import CostGauges
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.resolver import PolicyResolver
from trimtab.operator.policy.status_writer import PolicyStatusWriter
from trimtab.operator.savings import SavingsReader
from trimtab.operator.views import WorkloadViewPublisher
from trimtab.operator.vpa.recommender import VpaRecommender
from trimtab.recommender.cohort import LatestUsage
from trimtab.recommender.cohort_store import TrackedContainer
from trimtab.recommender.recommender import Recommender
from trimtab.recommender.workload import (
    ClusterConstraints,
    count_containers_per_pod,
    largest_node,
    list_sized_containers,
)
from trimtab.sizing.recommendation import Recommendation
from trimtab.usage.pod_ownership import WorkloadContainer

log = structlog.get_logger(__name__)

_MAX_NAMED = 10
"""The maximum number of policies that a message names."""


def record_usage_ratios(
    recommendations: Iterable[Recommendation],
    latest_usage: Callable[[str], LatestUsage | None],
    *,
    policy: str,
    metrics: Metrics,
) -> None:
    """Record the usage of a workload's containers relative to their recommendations; `used` looks up one by name."""
    for each in recommendations:
        found = latest_usage(each.container) if each.no_change_reason is None else None
        if found is None:
            continue
        shares = {
            "cpu": (found.cpu * 1000, each.target.cpu_request),
            "memory": (found.memory, each.target.memory_request),
        }
        for resource, (amount, recommended) in shares.items():
            # A source may have samples of one resource only; NaN would spoil the sum of the histogram for
            # ever.
            if recommended and not math.isnan(amount):
                metrics.usage_ratio.labels(policy, resource).observe(amount / recommended)


class IngestCycle:
    """Ingests usage for all workloads of a cluster, cycle by cycle."""

    def __init__(
        self,
        *,
        cluster_state: ClusterState,
        policy_resolver: PolicyResolver,
        recommender: Recommender,
        status_writer: PolicyStatusWriter,
        vpa_recommender: VpaRecommender,
        view_publisher: WorkloadViewPublisher,
        enqueue: Callable[[WorkloadKey], None],
        metrics: Metrics,
        cost_gauges: CostGauges,
        savings: SavingsReader,
        intent_targets: Callable[[], AbstractSet[WorkloadKey]],
    ) -> None:
        """Create the cycle; `intent_targets` returns workloads to ingest because an Intent controls them."""
        self._cluster_state = cluster_state
        self._policy_resolver = policy_resolver
        self._recommender = recommender
        self._status_writer = status_writer
        self._vpa_recommender = vpa_recommender
        self._view_publisher = view_publisher
        self._cost_gauges = cost_gauges
        self._savings = savings
        self._intent_targets = intent_targets
        self._enqueue = enqueue
        self._metrics = metrics
        self.cluster_constraints = ClusterConstraints()
        """The constraints on workloads, as of the last cycle."""

    async def run_once(self, now: float) -> None:
        """Ingest usage up to now."""
        cluster_state = self._cluster_state
        # Otherwise series of deleted policies and namespaces would stay in dashboards for ever.
        self._metrics.remove_stale_labels("policy", {str(policy) for policy in cluster_state.policies})
        self._metrics.remove_stale_labels("namespace", {each.name for each in cluster_state.namespaces})
        # Built once a cycle: to sum up all nodes and quotas for each of thousands of workloads would be too
        # expensive.
        self.cluster_constraints = cluster_state.build_constraints()
        workloads = list(cluster_state.list_workloads())
        # These containers are learned even if no policy selects them.
        asked = self._vpa_recommender.targets() | self._intent_targets()
        tracked: dict[WorkloadContainer, TrackedContainer] = {}
        for workload in workloads:
            if spec := self._policy_resolver.resolve_strategy(
                self._policy_resolver.resolve(workload), is_required=workload.key in asked
            ):
                pods = cluster_state.list_pods(workload)
                container = TrackedContainer(spec, workload.created, count_containers_per_pod(workload, pods))
                tracked |= dict.fromkeys(list_sized_containers(workload, pods), container)
        # The statuses of policies report both, and nothing else enqueues them when a source fails or recovers.
        errors_before, unsampled_before = self._recommender.errors_by_source, self._recommender.unsampled
        new = await self._recommender.ingest(
            now,
            tracked=tracked,
            owners=cache(cluster_state.build_owner_index),
            running=running_containers(cluster_state),
            pods=container_start_times(cluster_state.pods),
            largest_node=largest_node(cluster_state.nodes),
        )
        # Containers with their first samples get a recommendation now, instead of one reconciliation
        # interval later.
        for key in {name.workload for name in new}:
            self._enqueue(key)
        errors = self._recommender.errors_by_source
        if errors != errors_before or self._recommender.unsampled != unsampled_before:
            for policy in cluster_state.policies:
                self._status_writer.enqueue(policy.key)
        self._log_affected_policies(errors.items() - errors_before.items())

        # Both the ratios and the costs ask for each container.
        @cache
        def latest_usage(name: WorkloadContainer) -> LatestUsage | None:
            return self._latest_usage(name, tracked)

        for workload in workloads:
            self._record_usage_ratios(workload, latest_usage)
        self._view_publisher.sync(cluster_state.list_workloads())
        await self._savings.refresh(now)
        changed = self._cost_gauges.update(
            self._view_publisher.views.read().values(),
            self._policy_resolver.config.prices,
            now=now,
            nodes=cluster_state.nodes,
            usage=latest_usage,
        )
        for policy in cluster_state.policies:
            if str(policy) in changed:
                self._status_writer.enqueue(policy.key)

    def _log_affected_policies(self, errors: Iterable[tuple[str, str]]) -> None:
        """Log which policies have no usage because of these new errors of sources."""
        for source, error in errors:
            policies = [
                str(policy)
                for policy in self._cluster_state.policies
                if self._policy_resolver.resolve_policy(policy).strategy_spec.source == source
            ]
            if policies:
                log.warning(
                    "policies.usage_unknown",
                    source=self._recommender.ingesters[source].name,
                    policies=", ".join(policies[:_MAX_NAMED]),
                    count=len(policies),
                    error=error,
                )

    def _latest_usage(
        self, name: WorkloadContainer, tracked: Mapping[WorkloadContainer, TrackedContainer]
    ) -> LatestUsage | None:
        """Return the latest usage of a container; None if it is unknown or old."""
        spec = tracked[name].strategy_spec if name in tracked else None
        if spec is None or self._recommender.ingester_for(spec).last_error:
            return None
        return self._recommender.latest_usage(name, spec)

    def _record_usage_ratios(
        self, workload: Workload, latest_usage: Callable[[WorkloadContainer], LatestUsage | None]
    ) -> None:
        """Record the usage relative to the previous recommendations; none while a source fails, because it is old."""
        outcome = self._status_writer.get_outcome(workload.key)
        if outcome is None or not outcome.recommendations:
            return
        policy = self._policy_resolver.resolve(workload)
        if policy is None:
            return
        key = workload.key
        record_usage_ratios(
            outcome.recommendations,
            lambda container: latest_usage(WorkloadContainer.from_workload(key, container)),
            policy=policy.name,
            metrics=self._metrics,
        )
