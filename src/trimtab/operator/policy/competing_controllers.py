"""Who else may have the say over a workload's size, besides policies: VerticalPodAutoscalers and intents."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.resources import INTENTS, VPAS
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intents.intent_index import IntentIndex


class CompetingControllers:
    """Asked anew each time; `roll` is None where nobody looks after intents."""

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
        """The name of the intent that has the say over a workload; empty where none has."""
        owner = self._enabled_intent_index.controlling_intent(key) if self._enabled_intent_index else None
        return str(owner) if owner else ""

    def intent_targets(self) -> set[WorkloadKey]:
        """Return the workloads that active intents are about."""
        return self._enabled_intent_index.targets() if self._enabled_intent_index else set()

    def unsynced_reason(self) -> str:
        """Why it is not known who else has the say over workloads: one that has may be among those."""
        for kind in (VPAS, INTENTS) if self._enabled_intent_index else (VPAS,):
            if why := self._cluster_state.unsynced_reason(kind):
                return f"not touched, as it is not known whether any {kind.kind} has the say over it: {why}"
        return ""

    @property
    def _enabled_intent_index(self) -> IntentIndex | None:
        return self._intent_index if self._config().intents.enabled else None
