"""Group the costs of workloads by namespace, policy, or any label, for the page of costs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trimtab.scan.showback import NAMESPACE, GroupCost, sum_groups
from trimtab.web.model import WorkloadRow

POLICY = "policy"
LABEL = "label:"
"""The prefix of a key that means a label, also of one named `namespace` or `policy`; no label contains its colon."""
MAX_KEYS, MAX_GROUPS = 50, 500
"""The most labels that a page offers, the most common ones, and the most groups that it shows, the most expensive ones."""


@dataclass(frozen=True, slots=True)
class CostGroups:
    """The costs of all workloads by one key."""

    key: str
    keys: tuple[str, ...]
    """The keys to choose from."""
    groups: tuple[GroupCost, ...]
    total: int
    """The number of groups, of which the most expensive are there."""
    cost: float
    saving: float

    @classmethod
    def build(cls, rows: Sequence[WorkloadRow], given: Mapping[str, str]) -> CostGroups:
        """Group by the label that a viewer asked for, or by namespace."""
        key = given.get("by", "")[:317].strip() or NAMESPACE
        used = Counter(
            f"{LABEL}{name}" if name in {NAMESPACE, POLICY} else name
            for row in rows
            for name, _ in row.labels
        )
        groups = sum_groups((_group_name(row, key), row.cost, row.saving) for row in rows)
        return cls(
            key=key,
            keys=(NAMESPACE, POLICY, *(name for name, _ in used.most_common(MAX_KEYS))),
            groups=tuple(groups[:MAX_GROUPS]),
            total=len(groups),
            cost=sum(each.cost for each in groups),
            saving=sum(each.saving for each in groups),
        )


def _group_name(row: WorkloadRow, key: str) -> str | None:
    if key == NAMESPACE:
        return row.namespace
    if key == POLICY:
        return row.policy or None
    return dict(row.labels).get(key.removeprefix(LABEL))
