"""What a strategy says instead of writing: which knob where, what value, how firmly, in whose name, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

from trimtab.node.arbiter.value_order import Value
from trimtab.node.cgroups import Knob

__all__ = ["BoundType", "KnobRef", "KnobRequest", "Precedence", "Value"]


@dataclass(frozen=True, slots=True)
class KnobRef:
    """One value of the node that can be set: a knob of a cgroup, or of the machine."""

    path: str
    """The cgroup; of a knob of resctrl its group; of the machine's own nothing."""
    knob: Knob[Any]

    @property
    def depth(self) -> int:
        return self.path.count("/") + bool(self.path)

    @property
    def parent(self) -> KnobRef | None:
        """The same knob one cgroup up; None at the top, which has no knobs that are anybody's to set."""
        above = self.path.rpartition("/")[0]
        return KnobRef(above, self.knob) if above else None

    @property
    def key(self) -> tuple[str, str]:
        return self.path, self.knob.name

    def __str__(self) -> str:
        return f"{self.path or 'machine'} {self.knob.name}"


class BoundType(Enum):
    """How firmly a value is meant."""

    EXACTLY = "exactly"
    AT_MOST = "at most"
    AT_LEAST = "at least"


class Precedence(IntEnum):
    """Whose wish counts, the higher before the lower."""

    PRIORITY = 1
    """What makes one pod better off: only the strategies' and pods' priorities weigh it."""
    POLICY = 2
    """What the node's policy says outright."""
    SAFETY = 3
    """What keeps the node and its latency-sensitive pods out of trouble. Nothing overrules it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobRequest:
    """One strategy's wish for one knob."""

    ref: KnobRef
    value: Value
    strategy: str
    reason: str = field(compare=False)
    """The numbers that made it, in one line."""
    bound: BoundType = BoundType.EXACTLY
    precedence: Precedence = Precedence.POLICY
    priority: int = 0
    """Among wishes of the same precedence, the greater first."""
