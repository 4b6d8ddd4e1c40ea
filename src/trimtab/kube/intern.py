"""One copy of each equal value: the replicas of a workload share their labels, owners and container specs.

`InternTable` keeps the values. A plain dictionary would grow for ever in a cluster whose pods come and
go, and weak references cost more than they save on small tuples. So the table is swept when it has
doubled since the last sweep: whatever nothing but the table refers to is dropped. The cost is constant
per interned value.

`Memo` saves the work of making them: equal JSON has equal meaning, so a piece of raw JSON that was seen
a moment ago is not parsed again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_SMALLEST = 4096


class InternTable:
    """Values seen so far, each kept once."""

    __slots__ = ("_sweep_at", "_values")

    def __init__(self) -> None:
        self._values: dict[object, object] = {}
        self._sweep_at = _SMALLEST

    def __call__(self, value: T) -> T:
        """The first value equal to this one."""
        kept = self._values.setdefault(value, value)
        if kept is value and len(self._values) > self._sweep_at:
            self._sweep()
        return kept  # type: ignore[return-value] # equal values of our records have one type

    def __len__(self) -> int:
        return len(self._values)

    def _sweep(self) -> None:
        # Key, value, loop variable and argument are four references: whatever has no fifth is unused.
        # (Should an interpreter count fewer, values in use are dropped too: sharing is lost, nothing else.)
        while unused := [value for value in self._values if sys.getrefcount(value) <= 4]:
            while unused:
                del self._values[unused.pop()]
            # A dropped tuple may have been the last to hold others: look again.
        self._sweep_at = max(_SMALLEST, 2 * len(self._values))


class Memo(Generic[K, T]):
    """Answers of a pure function by its argument, forgotten all at once when there are too many.

    Equal objects tend to follow one another (a list is sorted by name), so a small memory is enough.
    """

    __slots__ = ("_answers", "_function")

    LIMIT = 4096

    def __init__(self, function: Callable[[K], T]) -> None:
        self._function = function
        self._answers: dict[K, T] = {}

    def __call__(self, argument: K) -> T:
        try:
            return self._answers[argument]
        except KeyError:
            pass
        if len(self._answers) >= self.LIMIT:
            self._answers.clear()
        answer = self._answers[argument] = self._function(argument)
        return answer
