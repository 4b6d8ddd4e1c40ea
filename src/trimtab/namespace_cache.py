"""Results of functions, kept in a share for each namespace, so that the users of one cannot push out those of others."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MAX_NAMESPACES = 10_000


class NamespaceCache(Generic[K, V]):
    """The most recently used results, a bounded number for each namespace; an exception is not kept."""

    def __init__(self, share: int) -> None:
        self._share = share
        # Reviews of the webhook run in other threads.
        self._lock = Lock()
        self._shares: OrderedDict[str, OrderedDict[K, V]] = OrderedDict()

    def get(self, namespace: str, key: K, compute: Callable[[], V]) -> V:
        """Return the kept result, or compute and keep it."""
        with self._lock:
            share = self._shares.setdefault(namespace, OrderedDict())
            self._shares.move_to_end(namespace)
            while len(self._shares) > MAX_NAMESPACES:
                self._shares.popitem(last=False)
            if key in share:
                share.move_to_end(key)
                return share[key]
        found = compute()
        with self._lock:
            share[key] = found
            while len(share) > self._share:
                share.popitem(last=False)
        return found
