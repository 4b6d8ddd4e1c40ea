"""Results of functions, kept and computed in a share for each namespace.

The users of one namespace can neither push out the results of others, nor use up the time in which theirs are computed.
"""

from __future__ import annotations

import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from threading import Lock
from typing import Generic, TypeVar

from trimtab.errors import TrimtabError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MAX_NAMESPACES = 10_000


class BudgetExhausted(TrimtabError):
    """A namespace has used up its time; what it asked for is computed later."""


class NamespaceBudget:
    """The CPU seconds that each namespace may use until they are renewed."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._spent: defaultdict[str, float] = defaultdict(float)

    def renew(self) -> None:
        """Give every namespace its time again."""
        self._spent = defaultdict(float)

    @contextmanager
    def spend(self, namespace: str) -> Iterator[None]:
        """Count the CPU time of a block as a namespace's; raises `BudgetExhausted` if none is left."""
        if self._spent[namespace] >= self._seconds:
            raise BudgetExhausted(f"namespace {namespace} has many new queries, which wait for their check")
        started = time.thread_time()
        try:
            yield
        finally:
            self._spent[namespace] += time.thread_time() - started


class NamespaceCache(Generic[K, V]):
    """The most recently used results, a bounded number for each namespace; an exception is not kept."""

    def __init__(self, share: int) -> None:
        self._share = share
        # Reviews of the webhook run in other threads.
        self._lock = Lock()
        self._shares: OrderedDict[str, OrderedDict[K, V]] = OrderedDict()

    def get(
        self, namespace: str, key: K, compute: Callable[[], V], *, budget: NamespaceBudget | None = None
    ) -> V:
        """Return the kept result, or compute and keep it; raises `BudgetExhausted` if there is no time for that."""
        with self._lock:
            share = self._shares.setdefault(namespace, OrderedDict())
            self._shares.move_to_end(namespace)
            while len(self._shares) > MAX_NAMESPACES:
                self._shares.popitem(last=False)
            if key in share:
                share.move_to_end(key)
                return share[key]
        with budget.spend(namespace) if budget else nullcontext():
            found = compute()
        with self._lock:
            share[key] = found
            while len(share) > self._share:
                share.popitem(last=False)
        return found
