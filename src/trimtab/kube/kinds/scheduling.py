"""Scheduling constraints: the taints of nodes, and the tolerations and node selector of a pod template.

Affinity, topology spread and volumes are left out; pods that they keep off a node show up as pending.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trimtab.kube.cache.projection import Labels

_BLOCKING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


class Taint(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    value: str = ""
    effect: str = ""

    @property
    def blocks_scheduling(self) -> bool:
        return self.effect in _BLOCKING_EFFECTS


class Toleration(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    """The key of the taint; empty with the operator Exists matches every key."""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    """The effect of the taint; empty matches every effect."""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect not in {"", taint.effect} or self.key not in {"", taint.key}:
            return False
        return self.operator == "Exists" or (self.key == taint.key and self.value == taint.value)


class SchedulingConstraints(msgspec.Struct, frozen=True):
    """The constraints of a pod template on nodes."""

    tolerations: tuple[Toleration, ...] = ()
    node_selector: Labels = ()

    def allows_node(self, taints: Iterable[Taint], labels: Labels) -> bool:
        """Return True if pods may run on a node with these taints and labels."""
        return set(self.node_selector) <= set(labels) and all(
            any(each.tolerates(taint) for each in self.tolerations)
            for taint in taints
            if taint.blocks_scheduling
        )
