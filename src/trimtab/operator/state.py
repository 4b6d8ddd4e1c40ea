"""What a leader works with, for those who look over its shoulder: the dashboard.

They read; what they want done they write to the workload (`actuation.hold`), where the loop finds it.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.actuation.effective_size import effective_containers
from trimtab.kube.kinds.pods import Container
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.object_client import Objects
from trimtab.operator.cluster_state import Catalog
from trimtab.operator.intents.effect_learner import Lessons
from trimtab.operator.intents.intent_index import Roll
from trimtab.operator.intents.observer import Observer
from trimtab.operator.policy.resolver import Orders
from trimtab.operator.policy.status_writer import Statuses
from trimtab.recommender.recommender import Learning
from trimtab.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentDesk:
    """What intents want, how that is measured, and what they have taught."""

    roll: Roll
    observer: Observer
    lessons: Lessons


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """The parts of one term; another term has others."""

    name: str
    """What the cluster is known by in the store."""
    objects: Objects
    catalog: Catalog
    orders: Orders
    learning: Learning
    statuses: Statuses
    store: Store
    intents: IntentDesk | None = None
    """None where intents are not looked after."""

    def effective_containers(self, workload: Workload) -> tuple[Container, ...]:
        """Return the containers of a workload with the sizes that they have in effect."""
        pods, enabled = self.catalog.pods_of(workload), self.orders.config.intents.enabled
        owner = self.intents.roll.owner(workload.key) if self.intents and enabled else None
        intent, mandate = str(owner) if owner else "", self.orders.of(workload)
        return effective_containers(
            workload, pods, self.orders.pod_sync(workload, mandate, pods, intent=intent)
        )
