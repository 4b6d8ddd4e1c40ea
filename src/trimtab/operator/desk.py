"""What a leader works with, for those who look over its shoulder: the dashboard.

They read; what they want done they write to the workload (`actuation.hold`), where the loop finds it.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.actuation.effective import effective_containers
from trimtab.kube.objects import Objects
from trimtab.kube.pods import Container
from trimtab.kube.workloads import Workload
from trimtab.operator.catalog import Catalog
from trimtab.operator.intents.lessons import Lessons
from trimtab.operator.intents.observing import Observer
from trimtab.operator.intents.roll import Roll
from trimtab.operator.learning import Learning
from trimtab.operator.orders import Orders
from trimtab.operator.statuses import Statuses
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
