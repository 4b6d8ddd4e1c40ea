"""Keep one copy of equal values: the replicas of a workload share their labels, owners and container specs.

`InternTable` keeps the values. A plain dictionary would grow for ever in a cluster whose pods come and go, and weak
references cost more than they save on small tuples. So the table is swept when it has doubled since the last sweep:
every value that only the table refers to is dropped. The cost per interned value is constant.

`Memo` saves the work of building the values: equal JSON has equal meaning, so raw JSON that was decoded a moment ago
is not decoded again.

Both are dictionaries with `__missing__`: a hit runs no Python code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_MIN_SWEEP_SIZE = 4096


class InternTable(dict[Any, Any]):
    """Interned values: `table[value]` is the first value equal to it."""

    __slots__ = ("_sweep_at",)

    def __init__(self) -> None:
        super().__init__()
        self._sweep_at = _MIN_SWEEP_SIZE

    def __missing__(self, value: T) -> T:
        self[value] = value
        if len(self) > self._sweep_at:
            self._sweep()
        return value

    def _sweep(self) -> None:
        # Key, value, loop variable and argument are four references: a value without a fifth is unused. (If an
        # interpreter counts fewer, values in use are dropped too, which only loses sharing.)
        while unused := [value for value in self if sys.getrefcount(value) <= 4]:
            while unused:
                del self[unused.pop()]
            # A dropped tuple may have held the last reference to others: sweep again.
        self._sweep_at = max(_MIN_SWEEP_SIZE, 2 * len(self))


class Memo(dict[K, T]):
    """Memoized results of a pure function: `memo[argument]`. All are dropped at once when there are too many.

    Equal objects tend to follow one another (a list is sorted by name), so a small memo is enough.
    """

    __slots__ = ("_function",)

    LIMIT = 4096

    def __init__(self, function: Callable[[K], T]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, argument: K) -> T:
        if len(self) >= self.LIMIT:
            self.clear()
        answer = self[argument] = self._function(argument)
        return answer
