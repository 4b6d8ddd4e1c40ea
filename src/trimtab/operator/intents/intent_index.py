"""All Intents and KPIProfiles of a cluster, and which intent has the say over a workload.

One owner a field: where an active intent is about a workload, its replicas and its sizes are the intent's, and an
OptimizationPolicy only recommends. Of several intents about one workload the one with the highest priority has the
say, of equals the oldest; the others report.
"""

from __future__ import annotations

from collections.abc import Callable

from trimtab.kube.cache.informer_set import Follower
from trimtab.kube.cache.store import Cache
from trimtab.kube.kinds.custom import Intent, IntentKey, KPIProfile, ProfileKey, intents, kpi_profiles
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.resources import INTENTS, KPI_PROFILES


class Roll:
    """Who wants what."""

    def __init__(self, following: Follower) -> None:
        self.intents: Cache[Intent] = following.follow(
            INTENTS, intents(), indexes={"target": lambda intent: intent.target}, optional=True
        )
        self.profiles: Cache[KPIProfile] = following.follow(KPI_PROFILES, kpi_profiles(), optional=True)
        self._listeners: list[Callable[[WorkloadKey], None]] = []
        self.intents.on_change(self._changed)

    def on_owner_change(self, listener: Callable[[WorkloadKey], None]) -> None:
        """Tell of each workload that an intent may have taken over or let go of."""
        self._listeners.append(listener)

    def intent(self, key: IntentKey) -> Intent | None:
        namespace, name = key
        return self.intents.get(name, namespace)

    def profile(self, key: ProfileKey) -> KPIProfile | None:
        namespace, name = key
        return self.profiles.get(name, namespace)

    def targets(self) -> set[WorkloadKey]:
        """Return the workloads that active intents are about, be they there or not."""
        return {intent.target for intent in self.intents if _acts(intent) and intent.target}

    def owner(self, target: WorkloadKey) -> Intent | None:
        """The intent that has the say over a workload; None where none has."""
        return min(filter(_acts, self.intents.find("target", target)), key=_rank, default=None)

    def _changed(self, old: Intent | None, new: Intent | None, /) -> None:
        if old and new and (old.uid, old.generation) == (new.uid, new.generation):
            return  # only its status was written, and by us
        for target in {each.target for each in (old, new) if each and each.target}:
            for listener in self._listeners:
                listener(target)


def _acts(intent: Intent) -> bool:
    return intent.spec is not None and intent.spec.active


def _rank(intent: Intent) -> tuple[float, int, str]:
    assert intent.spec is not None
    return -intent.spec.priority, intent.created, intent.name
