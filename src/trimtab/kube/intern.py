"""One copy of each equal value: the replicas of a workload share their labels, owners and container specs.

A plain dictionary would grow for ever in a cluster whose pods come and go, and weak references cost
more than they save on small tuples. So the table is swept when it has doubled since the last sweep:
whatever nothing but the table refers to is dropped. The cost is constant per interned value.
"""

from __future__ import annotations

import sys
from typing import TypeVar

T = TypeVar("T")

_SMALLEST = 4096


class InternTable:
    """Values seen so far, each kept once."""

    __slots__ = ("_sweep_at", "_values")

    def __init__(self) -> None:
        self._values: dict[object, object] = {}
        self._sweep_at = _SMALLEST

    def __call__(self, value: T) -> T:
        """The first value equal to this one and of its type."""
        kept = self._values.setdefault(value, value)
        if kept is value and len(self._values) > self._sweep_at:
            self._sweep()
        return kept  # type: ignore[return-value] # equal values of our records have one type

    def __len__(self) -> int:
        return len(self._values)

    def _sweep(self) -> None:
        """Drop what only the table holds: key, value, the loop variable and the argument make four references."""
        # A dropped tuple may have been the last holder of others: repeat until nothing more goes.
        while True:
            unused = [value for value in self._values if sys.getrefcount(value) <= 4]  # noqa: PLR2004 - see above
            for value in unused:
                del self._values[value]
            if not unused:
                break
            del unused, value
        self._sweep_at = max(_SMALLEST, 2 * len(self._values))
