"""Who else may have the say over a workload's size, besides policies: VerticalPodAutoscalers and intents."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.resources import INTENTS, VPAS
from trimtab.operator.cluster_state import Catalog
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intents.intent_index import Roll


class Rivals:
    """Asked anew each time; `roll` is None where nobody looks after intents."""

    def __init__(self, catalog: Catalog, roll: Roll | None, config: Callable[[], OperatorConfig]) -> None:
        self._catalog = catalog
        self._all_intents = roll
        self._config = config

    def intent(self, key: WorkloadKey) -> str:
        """The name of the intent that has the say over a workload; empty where none has."""
        owner = self._roll.owner(key) if self._roll else None
        return str(owner) if owner else ""

    def intent_targets(self) -> set[WorkloadKey]:
        """Return the workloads that active intents are about."""
        return self._roll.targets() if self._roll else set()

    def unread(self) -> str:
        """Why it is not known who else has the say over workloads: one that has may be among those."""
        for kind in (VPAS, INTENTS) if self._roll else (VPAS,):
            if why := self._catalog.unread(kind):
                return f"not touched, as it is not known whether any {kind.kind} has the say over it: {why}"
        return ""

    @property
    def _roll(self) -> Roll | None:
        return self._all_intents if self._config().intents.enabled else None
