"""Due times by key: a key has at most one due time, and the earliest requested one is kept.

This module is pure: the time is passed in and nothing sleeps. A heap cannot remove an entry from its middle, so
replaced and dropped entries stay in it; when they outnumber the keys, the heap is rebuilt. Each operation costs O(log
n) amortised, and memory is proportional to the keys that are really scheduled.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_MIN_LEFTOVERS = 64
"""The number of stale entries that do not justify a rebuild."""


class DelayHeap(Generic[K]):
    """Keys with the times at which they are due."""

    __slots__ = ("_entries", "_heap", "_order")

    def __init__(self) -> None:
        self._order = (
            itertools.count()
        )  # keys need not be comparable, and keys with equal times are due in the order they were added
        self._entries: dict[K, tuple[float, int, K]] = {}
        self._heap: list[tuple[float, int, K]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def put(self, key: K, when: float) -> None:
        """Make the key due at this time, unless it is due earlier already."""
        known = self._entries.get(key)
        if known is not None and known[0] <= when:
            return
        entry = self._entries[key] = (when, next(self._order), key)
        heapq.heappush(self._heap, entry)
        self._compact()

    def drop(self, key: K) -> None:
        """Remove the key."""
        if self._entries.pop(key, None) is not None:
            self._compact()

    @property
    def next_time(self) -> float | None:
        """The time at which the first key is due."""
        while self._heap and not self._is_current(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def first_due(self, now: float) -> K | None:
        """Return the key that has been due for longest, if any; it stays until it is dropped."""
        first = self.next_time
        return self._heap[0][2] if first is not None and first <= now else None

    def pop_due(self, now: float) -> list[K]:
        """Remove and return the keys that are due, the longest due first."""
        due: list[K] = []
        while (key := self.first_due(now)) is not None:
            heapq.heappop(self._heap)
            del self._entries[key]
            due.append(key)
        return due

    def _is_current(self, entry: tuple[float, int, K]) -> bool:
        return self._entries.get(entry[2]) is entry

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._entries) + _MIN_LEFTOVERS:
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)
