"""Sum up costs and savings by a label of the workloads, such as the team or the cost centre that pays for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trimtab.scan.model import WorkloadFinding

NAMESPACE = "namespace"
"""The key that groups by namespace instead of a label."""


@dataclass(slots=True)
class GroupCost:
    """The monthly costs of all workloads with the same value of a label."""

    name: str | None
    """The value; None for the workloads without the label."""
    workloads: int = 0
    cost: float = 0.0
    """The cost of their requests."""
    saving: float = 0.0
    """The savings of their recommendations, less the cost that they add elsewhere."""


def group_costs(workloads: Iterable[WorkloadFinding], key: str) -> list[GroupCost]:
    """Return the costs of each value of a label, the most expensive first; `namespace` groups by namespace."""
    groups: dict[str | None, GroupCost] = {}
    for found in workloads:
        name = found.key.namespace if key == NAMESPACE else dict(found.workload.labels).get(key)
        group = groups.setdefault(name, GroupCost(name))
        group.workloads += 1
        group.cost += found.cost
        group.saving += found.saving
    return sorted(groups.values(), key=lambda group: (-group.cost, group.name or ""))
