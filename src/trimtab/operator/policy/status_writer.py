"""Write the status of each policy when it has changed, in batches; a new problem also becomes an Event.

The reconciler sets the outcome of each workload here. A policy whose outcomes changed is written a moment later, with all
changes until then. While some of its workloads still have to be reconciled (`hold_until_reconciled`) it is not written,
because the status would describe only the others. The new status is compared with the present one, which is read from the
API server after a restart. Gauges count the same outcomes: the workloads that each policy selects, has applied, and skips.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

import msgspec
from prometheus_client import Gauge

from trimtab.api.meta import Document
from trimtab.api.optimizationpolicy import WorkloadState
from trimtab.kube.cache.informer_set import GRANT_RIGHTS
from trimtab.kube.errors import NotFound
from trimtab.kube.kinds.policies import Policy
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.object_client import ObjectClient
from trimtab.kube.rest.resources import CONFIG_MAPS, OPTIMIZATION_POLICIES
from trimtab.kube.runtime.event_correlator import EventType, ObjectReference
from trimtab.kube.runtime.workqueue import WorkQueue
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.resolver import DEFAULT_POLICY, PolicyKey, PolicyResolver
from trimtab.operator.policy.status import (
    StatusContext,
    WorkloadOutcome,
    build_policy_status,
    find_new_problems,
    list_forbidden,
)
from trimtab.operator.policy_matching import OverlapStats, count_overlaps
from trimtab.recommender.recommender import Recommender
from trimtab.recommender.source_ingester import SourceIngester
from trimtab.timing import Interval

LabelValues = tuple[str, ...]


class WorkloadGauges:
    """The gauges of all policies."""

    def __init__(self, metrics: Metrics) -> None:
        self._monitored = metrics.workloads_monitored
        self._updated = metrics.workloads_updated
        self._skipped = metrics.workloads_skipped
        self._shifted = metrics.workloads_shifted
        self._exported: dict[str, dict[Gauge, set[LabelValues]]] = {}

    def update(self, policy: str, outcomes: Iterable[tuple[WorkloadKey, WorkloadOutcome]]) -> None:
        """Set the gauges for a policy's workloads; without any, remove its series."""
        counts: dict[Gauge, Counter[LabelValues]] = {
            gauge: Counter() for gauge in (self._monitored, self._updated, self._skipped, self._shifted)
        }
        for key, outcome in outcomes:
            counts[self._monitored][key.namespace, policy] += 1
            counts[self._updated][key.namespace, policy] += outcome.state is WorkloadState.APPLIED
            if outcome.usage_shifts:
                counts[self._shifted][key.namespace, policy] += 1
            if outcome.state is WorkloadState.SKIPPED:
                counts[self._skipped][key.namespace, policy, outcome.skip_reason.value] += 1
        before = self._exported.pop(policy, {})
        for gauge, found in counts.items():
            for labels in before.get(gauge, set()) - found.keys():
                gauge.remove(*labels)
            for labels, number in found.items():
                gauge.labels(*labels).set(number)
        if counts[self._monitored]:
            self._exported[policy] = {gauge: set(found) for gauge, found in counts.items()}

    def clear(self) -> None:
        """Remove all series: the new leader reports them."""
        for policy in list(self._exported):
            self.update(policy, ())


COMPRESSION_LEVEL = 1
"""The zlib compression level of kept statuses."""

WRITE_DELAY = 2.0
"""The seconds during which changes are gathered into one write."""

OVERLAP_TTL = 10.0
"""The seconds for which the counted overlaps of policies are reused."""


class EventSink(Protocol):
    """A recorder of Events about an object."""

    def record(
        self,
        regarding: ObjectReference,
        *,
        type: EventType,  # noqa: A002 - Kubernetes' own word for it
        reason: str,
        message: str,
        action: str,
    ) -> None: ...


class NullEventSink:
    """An event sink that drops all Events, for environments where nobody reads them."""

    def record(self, regarding: ObjectReference, **fields: str) -> None:
        pass


class PolicyStatusWriter:
    """The outcomes of all workloads by policy, and the writer of their statuses; run `queue` as a task."""

    def __init__(
        self,
        client: ObjectClient,
        *,
        cluster_state: ClusterState,
        policy_resolver: PolicyResolver,
        recommender: Recommender,
        config_problem: Callable[[], str],
        stop_problem: Callable[[], str],
        may_write: Callable[[], bool],
        events: EventSink,
        gauges: WorkloadGauges,
        monthly_cost: Callable[[str], Document | None],
        now: Callable[[], float],
    ) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._policy_resolver = policy_resolver
        self._recommender = recommender
        self._config_problem = config_problem
        self._stop_problem = stop_problem
        self._may_write = may_write
        self._events = events
        self._gauges = gauges
        self._monthly_cost = monthly_cost
        """Returns the cost of the workloads of a policy by its name; None while it is unknown."""
        self._now = now
        self._overlaps: dict[PolicyKey, OverlapStats] = {}
        # To count overlaps means to match every workload: too much for each of thousands of policies in one batch.
        self._overlap_interval = Interval(OVERLAP_TTL)
        self._outcomes: dict[PolicyKey, dict[WorkloadKey, WorkloadOutcome]] = {}
        self._policy_by_workload: dict[WorkloadKey, PolicyKey] = {}
        self._written_statuses: dict[PolicyKey, tuple[str, bytes]] = {}
        """The last written status of each policy as compressed JSON, with the policy's uid, since a new policy may reuse
        the name. Uncompressed, the statuses of 2,000 policies would take 11 MiB."""
        self._expected: dict[WorkloadKey, PolicyKey] = {}
        self._pending: Counter[PolicyKey] = Counter()
        """The number of workloads of each policy that still have to be reconciled."""
        self.queue: WorkQueue[PolicyKey] = WorkQueue(
            "policies", self.write_status, group=lambda key: key[0], workers=4
        )

    def get_outcome(self, workload: WorkloadKey) -> WorkloadOutcome | None:
        """Return the outcome of a workload's last reconcile."""
        owner = self._policy_by_workload.get(workload)
        return self.get_outcomes(owner).get(workload) if owner else None

    def get_outcomes(self, policy: PolicyKey) -> Mapping[WorkloadKey, WorkloadOutcome]:
        """Return the outcomes of a policy's workloads."""
        return self._outcomes.get(policy, {})

    def set_outcome(self, policy: PolicyKey, workload: WorkloadKey, outcome: WorkloadOutcome) -> None:
        """Set the outcome of a workload, which belongs to this policy from now on."""
        if self._policy_by_workload.get(workload, policy) != policy:
            self.remove_workload(workload)
        self._policy_by_workload[workload] = policy
        outcomes = self._outcomes.setdefault(policy, {})
        before = outcomes.get(workload)
        outcomes[workload] = outcome
        # The time alone waits for the next refresh; every reconcile of every workload would build the status otherwise.
        if before is None or replace(before, recommended_at=outcome.recommended_at) != outcome:
            self.enqueue(policy)

    def remove_workload(self, workload: WorkloadKey) -> None:
        """Remove a workload that was deleted or that no policy selects any more."""
        owner = self._policy_by_workload.pop(workload, None)
        if owner is not None:
            self._outcomes.get(owner, {}).pop(workload, None)
            self.enqueue(owner)

    def hold_until_reconciled(self, workloads: Mapping[WorkloadKey, PolicyKey]) -> None:
        """Hold back the statuses of these policies until their workloads have been reconciled."""
        self._expected = dict(workloads)
        self._pending = Counter(workloads.values())

    def mark_reconciled(self, workload: WorkloadKey) -> None:
        """Mark a workload as reconciled, whatever the result."""
        policy = self._expected.pop(workload, None)
        if policy is not None:
            self._pending[policy] -= 1
            if not self._pending[policy]:
                self.enqueue(policy)

    def enqueue(self, policy: PolicyKey) -> None:
        """Schedule a write of a policy's status."""
        self.queue.add(policy, delay=WRITE_DELAY)

    async def write_status(self, key: PolicyKey) -> float | None:
        """Write the status of a policy if it has changed; return the delay of a retry, or None."""
        if self._pending[key]:
            return None  # the reconcile of its last workload enqueues it
        namespace, name = key
        policy = self._cluster_state.policies.get(name, namespace)
        if policy is None and key != DEFAULT_POLICY:
            self._written_statuses.pop(key, None)
            self._outcomes.pop(key, None)
        self._gauges.update(
            key[1] if key == DEFAULT_POLICY else "/".join(key), self.get_outcomes(key).items()
        )
        if policy is None:
            return None
        if not self._may_write():
            return WRITE_DELAY  # a leader that is unsure of its Lease may soon be sure again
        uid, kept = self._written_statuses.get(key, ("", b""))
        try:
            if uid != policy.uid:  # after a restart, or a new policy of the same name
                found = await self._client.get(OPTIMIZATION_POLICIES, name, namespace=namespace)
                before = found.get("status") or {}
            else:
                before = msgspec.json.decode(zlib.decompress(kept))
            status = build_policy_status(
                policy,
                self.get_outcomes(key),
                overlap=self._count_overlaps(policy),
                problem=self._policy_resolver.resolve_policy(policy).problem,
                context=self._build_context(policy),
                before=before,
            )
            if status != before:
                body = {
                    "metadata": {"name": name, "namespace": namespace, "uid": policy.uid},
                    "status": status,
                }
                await self._client.apply(OPTIMIZATION_POLICIES, body, subresource="status", force=True)
                self._emit_warnings(policy, find_new_problems(before, status))
        except NotFound:
            return None
        self._written_statuses[key] = (
            policy.uid,
            zlib.compress(msgspec.json.encode(status), COMPRESSION_LEVEL),
        )
        return None

    def _count_overlaps(self, policy: Policy) -> OverlapStats:
        now = self._now()
        if self._overlap_interval.due(now):
            found = count_overlaps(self._cluster_state.policy_matcher, self._cluster_state.list_workloads())
            self._overlaps = {each.key: stats for each, stats in found.items()}
            self._overlap_interval.restart(now)
        return self._overlaps.get(policy.key) or OverlapStats()

    def _build_context(self, policy: Policy) -> StatusContext:
        effective = self._policy_resolver.resolve_policy(policy)
        ingester = self._recommender.ingester_for(effective.strategy_spec)
        errors = dict(self._cluster_state.errors_by_resource())
        errors.pop(str(CONFIG_MAPS), None)  # these are no workloads
        stop_problem = self._stop_problem()
        return StatusContext(
            now=self._now(),
            usage_error=ingester.last_error,
            source=ingester.name,
            first_sample_at=ingester.first_sample_at,
            unsampled=tuple(sorted(self._list_unsampled(ingester, policy))),
            forbidden=list_forbidden(errors),
            dry_run=self._policy_resolver.config.dry_run,
            stop_reason=self._policy_resolver.config.stop_reason,
            # Each restart of an API server interrupts the watch, which is not worth a condition.
            stop_problem=stop_problem if GRANT_RIGHTS in stop_problem else "",
            refresh_interval=effective.reconciliation_interval,
            config_problem=self._config_problem(),
            monthly_cost=self._monthly_cost(str(policy)),
        )

    def _list_unsampled(self, ingester: SourceIngester, policy: Policy) -> Iterator[str]:
        """List the policy's running containers that have no samples."""
        for namespace, pod, container in ingester.unsampled:
            found = self._cluster_state.pods.get(pod, namespace)
            workload = self._cluster_state.find_workload(found) if found else None
            effective = self._policy_resolver.resolve(workload) if workload else None
            if effective and effective.key == policy.key:
                yield f"{namespace}/{pod} {container}"

    def _emit_warnings(self, policy: Policy, problems: Iterable[Document]) -> None:
        """Emit an Event for each new problem."""
        about = ObjectReference(
            api_version=OPTIMIZATION_POLICIES.api_version,
            kind=OPTIMIZATION_POLICIES.kind,
            name=policy.name,
            namespace=policy.namespace,
            uid=policy.uid,
        )
        for problem in problems:
            self._events.record(
                about,
                type="Warning",
                reason=problem["reason"],
                message=problem["message"],
                action="Reconcile",
            )
