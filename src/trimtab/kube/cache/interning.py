"""One copy of each equal value: the replicas of a workload share their labels, owners and container specs.

`InternTable` keeps the values. A plain dictionary would grow for ever in a cluster whose pods come and
go, and weak references cost more than they save on small tuples. So the table is swept when it has
doubled since the last sweep: whatever nothing but the table refers to is dropped. The cost is constant
per interned value.

`Memo` saves the work of making them: equal JSON has equal meaning, so a piece of raw JSON that was seen
a moment ago is not parsed again.

Both are dictionaries that fill themselves: what was seen before is found without running any Python.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_MIN_SWEEP_SIZE = 4096


class InternTable(dict[Any, Any]):
    """Values seen so far: `table[value]` is the first value equal to it."""

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
        # Key, value, loop variable and argument are four references: whatever has no fifth is unused.
        # (Should an interpreter count fewer, values in use are dropped too: sharing is lost, nothing else.)
        while unused := [value for value in self if sys.getrefcount(value) <= 4]:
            while unused:
                del self[unused.pop()]
            # A dropped tuple may have been the last to hold others: look again.
        self._sweep_at = max(_MIN_SWEEP_SIZE, 2 * len(self))


class Memo(dict[K, T]):
    """Answers of a pure function: `memo[argument]`. They are forgotten all at once when there are too many.

    Equal objects tend to follow one another (a list is sorted by name), so a small memory is enough.
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
