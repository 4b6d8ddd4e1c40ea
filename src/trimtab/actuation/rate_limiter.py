"""Limit the number of concurrent changes and of changes per minute, by cluster, namespace and node.

This is arithmetic on a time that is passed in. An action takes a slot when it is carried out and releases it
when its pod has settled. Increases go before decreases: while an increase waits for a slot, no decrease gets
it. Reverts never wait, but count. Losing this memory, with the process or because a clock is set back, makes
a minute slower or faster, no more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from trimtab.actuation.actions import Priority
from trimtab.actuation.deadlines import DEADLINES, MINUTE


@dataclass(frozen=True, slots=True)
class DisruptionLimit:
    """The most changes at once and per minute."""

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
    """The namespace and node in which an action takes place."""

    namespace: str
    node: str = ""


@dataclass(slots=True)
class _ScopeUsage:
    """The slots and recent starts of one scope."""

    limit: DisruptionLimit
    slots: dict[Hashable, float] = field(default_factory=dict)
    recent_starts: deque[float] = field(default_factory=deque)

    def next_free(self, now: float) -> float:
        """Return now if there is a free slot, else a later time at which to ask again."""
        self._expire(now)
        if len(self.recent_starts) >= self.limit.max_per_minute:
            return self.recent_starts[-self.limit.max_per_minute] + MINUTE
        return now if len(self.slots) < self.limit.max_concurrent else now + 1

    def is_idle(self, now: float) -> bool:
        self._expire(now)
        return not (self.slots or self.recent_starts)

    def _expire(self, now: float) -> None:
        for holder in [holder for holder, since in self.slots.items() if now - since >= DEADLINES.slot]:
            del self.slots[holder]
        while self.recent_starts and now - self.recent_starts[0] >= MINUTE:
            self.recent_starts.popleft()


@dataclass(slots=True)
class _WaitQueue:
    """The holders that wait for a slot, and the time at which each may ask again."""

    slot_times: dict[Hashable, float] = field(default_factory=dict)
    last_slot: float = float("-inf")
    """The last slot time that was handed out; minus infinity while nobody waits."""

    def join(self, holder: Hashable, free_at: float, now: float, *, spacing: float) -> float:
        """Return the slot time of a holder: the one that it has, or the next free one."""
        if self.slot_times.get(holder, now) <= now:
            self.last_slot = max(free_at, self.last_slot + spacing)
            self.slot_times[holder] = self.last_slot
        return self.slot_times[holder]

    def leave(self, holder: Hashable) -> None:
        if self.slot_times.pop(holder, None) is not None and not self.slot_times:
            self.last_slot = float("-inf")


class DisruptionLimiter:
    """Hands out slots to the actions of one process."""

    def __init__(self, limits: DisruptionLimits | None = None) -> None:
        self._limits = limits or DisruptionLimits()
        self._last_request = float("-inf")
        self._reset()

    @property
    def entry_count(self) -> int:
        """The number of entries: scopes, holders of a slot, and holders that wait for one."""
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
        """Use other limits from now on; slots that are taken stay taken."""
        self._limits = limits
        self._cluster.limit = limits.cluster
        for scopes, limit in ((self._namespaces, limits.namespace), (self._nodes, limits.node)):
            for scope in scopes.values():
                scope.limit = limit

    def next_slot(
        self, holder: Hashable, limit_scope: LimitScope, *, priority: Priority, now: float
    ) -> float:
        """Return the time at which to take a slot: now if one is free, else a later time that nobody else
        has.

        Thus thousands of waiting holders come back one by one, and not all of them every second.
        """
        if priority is Priority.REVERT:
            return now
        # Without a reset, all holders would wait for a time that this clock reaches only tomorrow. Minutes do
        # not count: a caller passes the time at which it started to read, which may be that long ago with a
        # slow server.
        if now < self._last_request - DEADLINES.slot:
            self._reset()
        self._last_request = now
        if now - self._last_pruned >= DEADLINES.slot:
            self._prune(now)
        free_at = max(scope.next_free(now) for scope in self._scopes_for(limit_scope))
        if priority is Priority.DECREASE:
            free_at = max(free_at, self._queues[Priority.INCREASE].last_slot + DEADLINES.increase_grace)
        if free_at <= now:
            return now
        return self._queues[priority].join(
            holder, free_at, now, spacing=MINUTE / self._limits.cluster.max_per_minute
        )

    def acquire(self, holder: Hashable, limit_scope: LimitScope, *, priority: Priority, now: float) -> float:
        """Take a slot and return `now`, or return the time at which to ask again."""
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
        """Release the slots and slot times of these holders: their pods have settled, or are gone."""
        for holder in holders:
            for scope in self._slots.pop(holder, ()):
                scope.slots.pop(holder, None)
            for queue in self._queues.values():
                queue.leave(holder)

    def _prune(self, now: float) -> None:
        """Drop idle scopes and holders that never came back, because new names keep coming."""
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
            for holder in [
                holder for holder, turn in queue.slot_times.items() if now - turn >= DEADLINES.slot
            ]:
                queue.leave(holder)

    def _scopes_for(self, place: LimitScope) -> Iterable[_ScopeUsage]:
        yield self._cluster
        yield self._namespaces.setdefault(place.namespace, _ScopeUsage(self._limits.namespace))
        if place.node:
            yield self._nodes.setdefault(place.node, _ScopeUsage(self._limits.node))
