"""The index of Intents and KPIProfiles, with the controlling Intent of each workload, and who competes with policies.

Each field has one owner: an active Intent controls the replicas and sizes of its target, and an OptimizationPolicy
only recommends. Of several Intents with the same target, the one with the highest priority controls it, then the
oldest; the others report. VerticalPodAutoscalers compete with policies too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from msgspec.structs import replace

from trimtab.kube.cache.informer_set import InformerPort
from trimtab.kube.cache.store import Cache
from trimtab.kube.kinds.custom import (
    IntentKey,
    IntentRecord,
    KPIProfileRecord,
    ProfileKey,
    intent_projection,
    kpi_profile_projection,
)
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.resources import INTENTS, KPI_PROFILES, VPAS
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.model import OperatorConfig

R = TypeVar("R", IntentRecord, KPIProfileRecord)


class IntentIndex:
    """The index of all Intents and KPIProfiles."""

    def __init__(self, informers: InformerPort) -> None:
        self.intents: Cache[IntentRecord] = informers.watch_resource(
            INTENTS, intent_projection(), indexes={"target": lambda intent: intent.target}, optional=True
        )
        self.profiles: Cache[KPIProfileRecord] = informers.watch_resource(
            KPI_PROFILES, kpi_profile_projection(), optional=True
        )
        self._excess: frozenset[tuple[str, str, str]] = frozenset()
        """The kind, namespace and name of objects above the limit of their namespace."""
        self._limit_problem = ""
        self._listeners: list[Callable[[WorkloadKey], None]] = []
        self.intents.on_change(self._on_intent_change)

    def on_controller_change(self, listener: Callable[[WorkloadKey], None]) -> None:
        """Call the listener for each workload whose controlling Intent may have changed."""
        self._listeners.append(listener)

    def limit_namespaces(self, most: int) -> None:
        """Use the oldest Intents and KPIProfiles of each namespace only: one namespace must not use up each cycle."""
        self._limit_problem = (
            f"the namespace has more than {most} of this kind, and the oldest are used: delete some, "
            "or ask the administrator to raise intents.maxPerNamespace"
        )
        self._excess = frozenset(
            {(INTENTS.kind, each.namespace, each.name) for each in _list_excess(self.intents, most)}
            | {(KPI_PROFILES.kind, each.namespace, each.name) for each in _list_excess(self.profiles, most)}
        )

    def list_intents(self) -> list[IntentRecord]:
        """Return all Intents; one above the limit of its namespace has a problem instead of a spec."""
        return [self._apply_limit(INTENTS.kind, each) for each in self.intents]

    def list_profiles(self) -> list[KPIProfileRecord]:
        """Return all KPIProfiles; one above the limit of its namespace has a problem instead of a spec."""
        return [self._apply_limit(KPI_PROFILES.kind, each) for each in self.profiles]

    def _apply_limit(self, kind: str, found: R) -> R:
        if (kind, found.namespace, found.name) not in self._excess:
            return found
        return replace(found, spec=None, problem=self._limit_problem)

    def get_intent(self, key: IntentKey) -> IntentRecord | None:
        namespace, name = key
        return self.intents.get(name, namespace)

    def get_profile(self, key: ProfileKey) -> KPIProfileRecord | None:
        namespace, name = key
        found = self.profiles.get(name, namespace)
        return found and self._apply_limit(KPI_PROFILES.kind, found)

    def targets(self) -> set[WorkloadKey]:
        """Return the workloads that active Intents target, whether they exist or not."""
        return {intent.target for intent in self.list_intents() if _is_active(intent) and intent.target}

    def controlling_intent(self, target: WorkloadKey) -> IntentRecord | None:
        """Return the Intent that controls a workload; None if there is none."""
        rivals = (self._apply_limit(INTENTS.kind, each) for each in self.intents.find("target", target))
        return min(filter(_is_active, rivals), key=_precedence, default=None)

    def _on_intent_change(self, old: IntentRecord | None, new: IntentRecord | None, /) -> None:
        if old and new and (old.uid, old.generation) == (new.uid, new.generation):
            return  # only the status was written, by this operator
        for target in {each.target for each in (old, new) if each and each.target}:
            for listener in self._listeners:
                listener(target)


def _list_excess(objects: Iterable[R], most: int) -> Iterator[R]:
    by_namespace: dict[str, list[R]] = {}
    for each in objects:
        by_namespace.setdefault(each.namespace, []).append(each)
    for own in by_namespace.values():
        if len(own) > most:
            yield from sorted(own, key=lambda each: (each.created, each.name))[most:]


def _is_active(intent: IntentRecord) -> bool:
    return intent.spec is not None and intent.spec.active


def _precedence(intent: IntentRecord) -> tuple[float, int, str]:
    assert intent.spec is not None
    return -intent.spec.priority, intent.created, intent.name


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
        index = self._enabled_intent_index
        owner = index.controlling_intent(key) if index else None
        return str(owner) if owner else ""

    def intent_targets(self) -> set[WorkloadKey]:
        """Return the workloads that active Intents target."""
        return self._enabled_intent_index.targets() if self._enabled_intent_index else set()

    def unsynced_reason(self, namespace: str) -> str:
        """Return the reason why what controls or bounds the workloads of a namespace is unknown; empty if it is known."""
        for kind in (VPAS, INTENTS) if self._enabled_intent_index else (VPAS,):
            if why := self._cluster_state.unsynced_reason(kind, namespace):
                return f"not changed, because objects of kind {kind.kind} may control it and cannot be read: {why}"
        why = self._cluster_state.unsynced_bounds_reason(namespace)
        return f"not changed, because {why}" if why else ""

    @property
    def _enabled_intent_index(self) -> IntentIndex | None:
        return self._intent_index if self._config().intents.enabled else None
