"""The keys of a work queue that are ready, in turns of their groups.

With one line for all, whoever makes thousands of keys ready at once delays everybody by as many reconciles.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic

from trimtab.kube.runtime.delay_heap import K


class ReadyKeys(Generic[K]):
    """The groups take turns; in each of them, keys keep their order, so that none starves."""

    def __init__(self, group: Callable[[K], Hashable]) -> None:
        self._group = group
        self._groups: OrderedDict[Hashable, OrderedDict[K, float]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: K) -> bool:
        return key in self._groups.get(self._group(key), ())

    def add(self, key: K, since: float) -> None:
        """Add a key with the time since which it is ready."""
        keys = self._groups.setdefault(self._group(key), OrderedDict())
        self._count += key not in keys
        keys[key] = since

    def take(self) -> tuple[K, float]:
        """Remove and return the first key of the group whose turn it is, and the time since which it was ready."""
        group, keys = self._groups.popitem(last=False)
        found = keys.popitem(last=False)
        self._count -= 1
        if keys:
            self._groups[group] = keys
        return found

    def drop(self, key: K) -> None:
        """Remove a key if it is there."""
        group = self._group(key)
        keys = self._groups.get(group)
        if keys is None or keys.pop(key, None) is None:
            return
        self._count -= 1
        if not keys:
            del self._groups[group]
