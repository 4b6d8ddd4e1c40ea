"""Where pods may go: what nodes keep off by their taints, and what a pod template tolerates and asks of a node. Pure.

Left out: affinity, spreading and volumes. Whom those keep off is seen to have no place.
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
    """Empty, with the operator Exists: every key."""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    """Empty: every effect."""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect not in {"", taint.effect} or self.key not in {"", taint.key}:
            return False
        return self.operator == "Exists" or (self.key == taint.key and self.value == taint.value)


class SchedulingConstraints(msgspec.Struct, frozen=True):
    """What a pod template says of nodes."""

    tolerations: tuple[Toleration, ...] = ()
    node_selector: Labels = ()

    def allows_node(self, taints: Iterable[Taint], labels: Labels) -> bool:
        """Whether pods may go to a node of these taints and labels."""
        return set(self.node_selector) <= set(labels) and all(
            any(each.tolerates(taint) for each in self.tolerations)
            for taint in taints
            if taint.blocks_scheduling
        )
