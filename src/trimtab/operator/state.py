"""The parts of a leader session that the dashboard reads.

The dashboard only reads them. It writes requests to the workload (`actuation.hold`), where the reconciler finds them.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.actuation.effective_size import effective_containers
from trimtab.kube.kinds.pods import Container
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.object_client import ObjectClient
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.intents.effect_learner import EffectLearner
from trimtab.operator.intents.intent_index import IntentIndex
from trimtab.operator.intents.observer import IntentObserver
from trimtab.operator.policy.resolver import PolicyResolver
from trimtab.operator.policy.status_writer import PolicyStatusWriter
from trimtab.recommender.recommender import Recommender
from trimtab.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentOperatorState:
    """The parts of the Intent controller: the Intents, their measurement, and the learned effects."""

    index: IntentIndex
    observer: IntentObserver
    effect_learner: EffectLearner


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorState:
    """The parts of one leader session; the next session has new ones."""

    cluster_name: str
    """The cluster's name in the store."""
    objects: ObjectClient
    cluster_state: ClusterState
    policy_resolver: PolicyResolver
    recommender: Recommender
    status_writer: PolicyStatusWriter
    store: Store
    intents: IntentOperatorState | None = None
    """The state of the Intent controller; None if it does not run."""

    def effective_containers(self, workload: Workload) -> tuple[Container, ...]:
        """Return the containers of a workload with the sizes that they have in effect."""
        pods, enabled = self.cluster_state.list_pods(workload), self.policy_resolver.config.intents.enabled
        owner = self.intents.index.controlling_intent(workload.key) if self.intents and enabled else None
        intent, policy = str(owner) if owner else "", self.policy_resolver.resolve(workload)
        return effective_containers(
            workload, pods, self.policy_resolver.pod_sync(workload, policy, pods, intent=intent)
        )
