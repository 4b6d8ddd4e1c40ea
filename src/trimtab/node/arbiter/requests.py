"""The requests of strategies: a knob, a value, a bound, a precedence and a reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

from trimtab.node.arbiter.value_order import Value
from trimtab.node.cgroups import Knob

__all__ = ["BoundType", "KnobRef", "KnobRequest", "Precedence", "Value"]


@dataclass(frozen=True, slots=True)
class KnobRef:
    """A settable value of the node: a knob of a cgroup or of the host."""

    path: str
    """The cgroup; the group of a resctrl knob; empty for the host."""
    knob: Knob[Any]

    @property
    def depth(self) -> int:
        return self.path.count("/") + bool(self.path)

    @property
    def parent(self) -> KnobRef | None:
        """Return the same knob of the parent cgroup; None at the top, whose knobs are never set."""
        above = self.path.rpartition("/")[0]
        return KnobRef(above, self.knob) if above else None

    @property
    def key(self) -> tuple[str, str]:
        return self.path, self.knob.name

    def __str__(self) -> str:
        return f"{self.path or 'machine'} {self.knob.name}"


class BoundType(Enum):
    """The meaning of a requested value."""

    EXACTLY = "exactly"
    AT_MOST = "at most"
    AT_LEAST = "at least"


class Precedence(IntEnum):
    """The precedence of a request; a higher one overrules a lower one."""

    PRIORITY = 1
    """Improves a pod; every other request overrules it."""
    POLICY = 2
    """Is required by the node's policy."""
    SAFETY = 3
    """Protects the node and its latency-sensitive pods; nothing overrules it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobRequest:
    """A strategy's request for one knob."""

    ref: KnobRef
    value: Value
    strategy: str
    reason: str = field(compare=False)
    """The values behind the request, in one line."""
    bound: BoundType = BoundType.EXACTLY
    precedence: Precedence = Precedence.POLICY
