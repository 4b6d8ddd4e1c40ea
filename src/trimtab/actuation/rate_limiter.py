"""How many changes go at once and a minute: in the cluster, in a namespace, on a node.

Arithmetic on a time that is passed in. A deed takes a slot when it is done and gives it back when its pod has
settled. Scale-ups go before scale-downs: while one waits for a slot, no scale-down gets it. Taking back goes at
once, and counts. Losing this memory, with the process or by a clock that is set back, costs a slower or quicker
minute, no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from trimtab.actuation.actions import Priority

MINUTE = 60
INCREASE_GRACE = 5
"""So long after its turn a scale-up still comes before a scale-down."""
SLOT_TIMEOUT = 3600
"""A slot that is not given back for so long is free again."""


@dataclass(frozen=True, slots=True)
class DisruptionLimit:
    """How many at once and a minute."""

    max_concurrent: int
    max_per_minute: int


@dataclass(frozen=True, slots=True)
class DisruptionLimits:
    """The limits of each scope; the defaults keep a large cluster calm and a small one moving."""

    cluster: DisruptionLimit = DisruptionLimit(max_concurrent=50, max_per_minute=120)
    namespace: DisruptionLimit = DisruptionLimit(max_concurrent=20, max_per_minute=60)
    node: DisruptionLimit = DisruptionLimit(max_concurrent=3, max_per_minute=10)


@dataclass(frozen=True, slots=True)
class LimitScope:
    """Where a deed is done."""

    namespace: str
    node: str = ""


@dataclass(slots=True)
class _ScopeUsage:
    """What goes on in one scope."""

    limit: DisruptionLimit
    slots: dict[Hashable, float] = field(default_factory=dict)
    recent_starts: deque[float] = field(default_factory=deque)

    def next_free(self, now: float) -> float:
        """When there is room: now, or a later time to ask again."""
        self._expire(now)
        if len(self.recent_starts) >= self.limit.max_per_minute:
            return self.recent_starts[-self.limit.max_per_minute] + MINUTE
        return now if len(self.slots) < self.limit.max_concurrent else now + 1

    def is_idle(self, now: float) -> bool:
        self._expire(now)
        return not (self.slots or self.recent_starts)

    def _expire(self, now: float) -> None:
        for holder in [holder for holder, since in self.slots.items() if now - since >= SLOT_TIMEOUT]:
            del self.slots[holder]
        while self.recent_starts and now - self.recent_starts[0] >= MINUTE:
            self.recent_starts.popleft()


@dataclass(slots=True)
class _WaitQueue:
    """Who waits, and when each may ask again."""

    slot_times: dict[Hashable, float] = field(default_factory=dict)
    last_slot: float = float("-inf")
    """The last turn that was given; in the past when nobody waits."""

    def join(self, holder: Hashable, free_at: float, now: float, *, spacing: float) -> float:
        """The holder's turn: the one it has, or the next that is free."""
        if self.slot_times.get(holder, now) <= now:
            self.last_slot = max(free_at, self.last_slot + spacing)
            self.slot_times[holder] = self.last_slot
        return self.slot_times[holder]

    def leave(self, holder: Hashable) -> None:
        if self.slot_times.pop(holder, None) is not None and not self.slot_times:
            self.last_slot = float("-inf")


class DisruptionLimiter:
    """Books slots for the deeds of one process."""

    def __init__(self, limits: DisruptionLimits | None = None) -> None:
        self._limits = limits or DisruptionLimits()
        self._last_request = float("-inf")
        self._reset()

    @property
    def entry_count(self) -> int:
        """How many names there are: of places, and of those who hold a slot or wait for one."""
        waiting = sum(len(queue.slot_times) for queue in self._queues.values())
        return len(self._namespaces) + len(self._nodes) + len(self._slots) + waiting

    def _reset(self) -> None:
        self._last_pruned = float("-inf")
        self._cluster = _ScopeUsage(self._limits.cluster)
        self._namespaces: dict[str, _ScopeUsage] = {}
        self._nodes: dict[str, _ScopeUsage] = {}
        self._slots: dict[Hashable, list[_ScopeUsage]] = {}
        self._queues = {Priority.INCREASE: _WaitQueue(), Priority.DECREASE: _WaitQueue()}

    def set_limits(self, limits: DisruptionLimits) -> None:
        """Keep to another pace from now on; what is held stays held."""
        self._limits = limits
        self._cluster.limit = limits.cluster
        for scopes, limit in ((self._namespaces, limits.namespace), (self._nodes, limits.node)):
            for scope in scopes.values():
                scope.limit = limit

    def next_slot(
        self, holder: Hashable, limit_scope: LimitScope, *, priority: Priority, now: float
    ) -> float:
        """When to take a slot: now where there is one, else a later time that is nobody else's.

        So that thousands who wait come one by one, and not all of them every second.
        """
        if priority is Priority.REVERT:
            return now
        # Or all would wait for a time that this clock comes to only tomorrow. Minutes are none: who asks tells when it
        # began to look, and where servers are slow that may be as long ago.
        if now < self._last_request - SLOT_TIMEOUT:
            self._reset()
        self._last_request = now
        if now - self._last_pruned >= SLOT_TIMEOUT:
            self._prune(now)
        free_at = max(scope.next_free(now) for scope in self._scopes_for(limit_scope))
        if priority is Priority.DECREASE:
            free_at = max(free_at, self._queues[Priority.INCREASE].last_slot + INCREASE_GRACE)
        if free_at <= now:
            return now
        return self._queues[priority].join(
            holder, free_at, now, spacing=MINUTE / self._limits.cluster.max_per_minute
        )

    def acquire(self, holder: Hashable, limit_scope: LimitScope, *, priority: Priority, now: float) -> float:
        """Take a slot: the answer is `now` when it is taken, else when to ask again."""
        turn = self.next_slot(holder, limit_scope, priority=priority, now=now)
        if turn > now:
            return turn
        self.release([holder])
        scopes = list(self._scopes_for(limit_scope))
        for scope in scopes:
            scope.slots[holder] = now
            scope.recent_starts.append(now)
        self._slots[holder] = scopes
        return now

    def release(self, holders: Iterable[Hashable]) -> None:
        """What these held or waited for is free: their pods have settled, or are gone."""
        for holder in holders:
            for scope in self._slots.pop(holder, ()):
                scope.slots.pop(holder, None)
            for queue in self._queues.values():
                queue.leave(holder)

    def _prune(self, now: float) -> None:
        """Let go of places where nothing goes on, and of who never came for a turn: new names come for ever."""
        self._last_pruned = now
        for places in (self._namespaces, self._nodes):
            for name in [name for name, scope in places.items() if scope.is_idle(now)]:
                del places[name]
        self._slots = {
            holder: scopes
            for holder, scopes in self._slots.items()
            if any(holder in scope.slots for scope in scopes)
        }
        for queue in self._queues.values():
            for holder in [holder for holder, turn in queue.slot_times.items() if now - turn >= SLOT_TIMEOUT]:
                queue.leave(holder)

    def _scopes_for(self, place: LimitScope) -> Iterable[_ScopeUsage]:
        yield self._cluster
        yield self._namespaces.setdefault(place.namespace, _ScopeUsage(self._limits.namespace))
        if place.node:
            yield self._nodes.setdefault(place.node, _ScopeUsage(self._limits.node))
