"""Controllers that compete with policies for a workload's size: VerticalPodAutoscalers and Intents."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.resources import INTENTS, VPAS
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intent_index import IntentIndex


class CompetingControllers:
    """Finds competing controllers on every call; `intent_index` is None if the Intent controller does not run."""

    def __init__(
        self,
        cluster_state: ClusterState,
        intent_index: IntentIndex | None,
        config: Callable[[], OperatorConfig],
    ) -> None:
        self._cluster_state = cluster_state
        self._intent_index = intent_index
        self._config = config

    def controlling_intent_name(self, key: WorkloadKey) -> str:
        """Return the name of the Intent that controls a workload; empty if there is none."""
        owner = self._enabled_intent_index.controlling_intent(key) if self._enabled_intent_index else None
        return str(owner) if owner else ""

    def intent_targets(self) -> set[WorkloadKey]:
        """Return the workloads that active Intents target."""
        return self._enabled_intent_index.targets() if self._enabled_intent_index else set()

    def unsynced_reason(self) -> str:
        """Return the reason why competing controllers are unknown; empty if they are known."""
        for kind in (VPAS, INTENTS) if self._enabled_intent_index else (VPAS,):
            if why := self._cluster_state.unsynced_reason(kind):
                return f"not changed, because objects of kind {kind.kind} may control it and cannot be read: {why}"
        return ""

    @property
    def _enabled_intent_index(self) -> IntentIndex | None:
        return self._intent_index if self._config().intents.enabled else None
