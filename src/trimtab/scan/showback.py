"""Sum up costs and savings by a label or an annotation of the workloads, such as the team or the cost centre that pays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trimtab.kube.kinds.workloads import Workload
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
    """Return the costs of each value of a label or annotation, the most expensive first; `namespace` groups by
    namespace.
    """
    return sum_groups(
        (
            found.key.namespace if key == NAMESPACE else find_value(found.workload, key),
            found.cost,
            found.saving,
        )
        for found in workloads
    )


def find_value(workload: Workload, key: str) -> str | None:
    """Return the value of a label of a workload, or else of an annotation."""
    labels = dict(workload.labels)
    return labels[key] if key in labels else dict(workload.annotations).get(key)


def sum_groups(costs: Iterable[tuple[str | None, float, float]]) -> list[GroupCost]:
    """Return the sums of costs and savings of each name, the most expensive first."""
    groups: dict[str | None, GroupCost] = {}
    for name, cost, saving in costs:
        group = groups.setdefault(name, GroupCost(name))
        group.workloads += 1
        group.cost += cost
        group.saving += saving
    return sorted(groups.values(), key=lambda group: (-group.cost, group.name or ""))
