"""Publish a view of each workload whenever it is reconciled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from trimtab.actuation.effective_size import effective_containers
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.policy.resolver import PolicyResolver
from trimtab.operator.policy.status_writer import PolicyStatusWriter
from trimtab.operator.views import PolicyView, ViewStore, WorkloadView
from trimtab.sizing.evidence import Evidence


class WorkloadViewPublisher:
    """Publishes the views of workloads: the reconciler's after each reconcile, and those of all others each cycle."""

    def __init__(
        self,
        cluster_state: ClusterState,
        policy_resolver: PolicyResolver,
        status_writer: PolicyStatusWriter,
        *,
        controlling_intent_name: Callable[[WorkloadKey], str],
    ) -> None:
        self._cluster_state = cluster_state
        self._policy_resolver = policy_resolver
        self._status_writer = status_writer
        self._controlling_intent_name = controlling_intent_name
        self._evidence: dict[WorkloadKey, Mapping[str, Evidence]] = {}
        self.views: ViewStore[WorkloadKey, WorkloadView] = ViewStore()

    def set_evidence(self, key: WorkloadKey, evidence: Mapping[str, Evidence]) -> None:
        """Set the evidence of a workload for its next views."""
        self._evidence[key] = evidence

    def publish(self, key: WorkloadKey) -> None:
        """Publish the current state of a workload, or remove its view if it no longer exists."""
        workload = self._cluster_state.get(key)
        # A VPA may name a ReplicaSet of a Deployment: it is reconciled, but the Deployment is what users see.
        if workload is None or self._cluster_state.find_top_owner(key) != key:
            self._remove(key)
            return
        pods, policy = self._cluster_state.list_pods(workload), self._policy_resolver.resolve(workload)
        sync = self._policy_resolver.pod_sync(
            workload, policy, pods, intent=self._controlling_intent_name(key)
        )
        self.views.publish(
            key,
            WorkloadView(
                workload=workload,
                pods=tuple(pod.name for pod in pods if not pod.deleting),
                containers=effective_containers(workload, pods, sync),
                policy=PolicyView(
                    name=policy.name,
                    spec=policy.spec,
                    rules=policy.rules,
                    source=policy.strategy_spec.source,
                )
                if policy
                else None,
                outcome=self._status_writer.get_outcome(key),
                evidence=self._evidence.get(key, {}) if policy else {},
            ),
        )

    def _remove(self, key: WorkloadKey) -> None:
        self.views.remove(key)
        self._evidence.pop(key, None)

    def sync(self, workloads: Iterable[Workload]) -> None:
        """Publish workloads that have no view yet, and remove the views of all that are not among these.

        A workload that another one adopts is never reconciled again, so nobody else removes its view.
        """
        keys = {workload.key for workload in workloads}
        for key in self.views.read().keys() - keys:
            self._remove(key)
        for key in keys:
            if key not in self.views:
                self.publish(key)
