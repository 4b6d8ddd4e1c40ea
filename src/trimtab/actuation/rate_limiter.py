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

from trimtab.actuation.actions import Urgency

MINUTE = 60
LATENESS = 5
"""So long after its turn a scale-up still comes before a scale-down."""
LONGEST = 3600
"""A slot that is not given back for so long is free again."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How many at once and a minute."""

    at_once: int
    per_minute: int


@dataclass(frozen=True, slots=True)
class Pace:
    """The limits of each scope; the defaults keep a large cluster calm and a small one moving."""

    cluster: Limit = Limit(at_once=50, per_minute=120)
    namespace: Limit = Limit(at_once=20, per_minute=60)
    node: Limit = Limit(at_once=3, per_minute=10)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a deed is done."""

    namespace: str
    node: str = ""


@dataclass(slots=True)
class _Scope:
    """What goes on in one scope."""

    limit: Limit
    held: dict[Hashable, float] = field(default_factory=dict)
    taken: deque[float] = field(default_factory=deque)

    def free_at(self, now: float) -> float:
        """When there is room: now, or a later time to ask again."""
        self._let_go(now)
        if len(self.taken) >= self.limit.per_minute:
            return self.taken[-self.limit.per_minute] + MINUTE
        return now if len(self.held) < self.limit.at_once else now + 1

    def is_quiet(self, now: float) -> bool:
        self._let_go(now)
        return not (self.held or self.taken)

    def _let_go(self, now: float) -> None:
        for holder in [holder for holder, since in self.held.items() if now - since >= LONGEST]:
            del self.held[holder]
        while self.taken and now - self.taken[0] >= MINUTE:
            self.taken.popleft()


@dataclass(slots=True)
class _Queue:
    """Who waits, and when each may ask again."""

    turns: dict[Hashable, float] = field(default_factory=dict)
    last: float = float("-inf")
    """The last turn that was given; in the past when nobody waits."""

    def join(self, holder: Hashable, free_at: float, now: float, *, spacing: float) -> float:
        """The holder's turn: the one it has, or the next that is free."""
        if self.turns.get(holder, now) <= now:
            self.last = max(free_at, self.last + spacing)
            self.turns[holder] = self.last
        return self.turns[holder]

    def leave(self, holder: Hashable) -> None:
        if self.turns.pop(holder, None) is not None and not self.turns:
            self.last = float("-inf")


class Pacer:
    """Books slots for the deeds of one process."""

    def __init__(self, pace: Pace | None = None) -> None:
        self._pace = pace or Pace()
        self._asked = float("-inf")
        self._forget()

    @property
    def remembered(self) -> int:
        """How many names there are: of places, and of those who hold a slot or wait for one."""
        waiting = sum(len(queue.turns) for queue in self._queues.values())
        return len(self._namespaces) + len(self._nodes) + len(self._held) + waiting

    def _forget(self) -> None:
        self._tidied = float("-inf")
        self._cluster = _Scope(self._pace.cluster)
        self._namespaces: dict[str, _Scope] = {}
        self._nodes: dict[str, _Scope] = {}
        self._held: dict[Hashable, list[_Scope]] = {}
        self._queues = {Urgency.UP: _Queue(), Urgency.DOWN: _Queue()}

    def adopt(self, pace: Pace) -> None:
        """Keep to another pace from now on; what is held stays held."""
        self._pace = pace
        self._cluster.limit = pace.cluster
        for scopes, limit in ((self._namespaces, pace.namespace), (self._nodes, pace.node)):
            for scope in scopes.values():
                scope.limit = limit

    def turn(self, holder: Hashable, place: Place, *, urgency: Urgency, now: float) -> float:
        """When to take a slot: now where there is one, else a later time that is nobody else's.

        So that thousands who wait come one by one, and not all of them every second.
        """
        if urgency is Urgency.BACK:
            return now
        # Or all would wait for a time that this clock comes to only tomorrow. Minutes are none: who asks tells when it
        # began to look, and where servers are slow that may be as long ago.
        if now < self._asked - LONGEST:
            self._forget()
        self._asked = now
        if now - self._tidied >= LONGEST:
            self._tidy(now)
        free_at = max(scope.free_at(now) for scope in self._scopes(place))
        if urgency is Urgency.DOWN:
            free_at = max(free_at, self._queues[Urgency.UP].last + LATENESS)
        if free_at <= now:
            return now
        return self._queues[urgency].join(
            holder, free_at, now, spacing=MINUTE / self._pace.cluster.per_minute
        )

    def take(self, holder: Hashable, place: Place, *, urgency: Urgency, now: float) -> float:
        """Take a slot: the answer is `now` when it is taken, else when to ask again."""
        turn = self.turn(holder, place, urgency=urgency, now=now)
        if turn > now:
            return turn
        self.give_back([holder])
        scopes = list(self._scopes(place))
        for scope in scopes:
            scope.held[holder] = now
            scope.taken.append(now)
        self._held[holder] = scopes
        return now

    def give_back(self, holders: Iterable[Hashable]) -> None:
        """What these held or waited for is free: their pods have settled, or are gone."""
        for holder in holders:
            for scope in self._held.pop(holder, ()):
                scope.held.pop(holder, None)
            for queue in self._queues.values():
                queue.leave(holder)

    def _tidy(self, now: float) -> None:
        """Let go of places where nothing goes on, and of who never came for a turn: new names come for ever."""
        self._tidied = now
        for places in (self._namespaces, self._nodes):
            for name in [name for name, scope in places.items() if scope.is_quiet(now)]:
                del places[name]
        self._held = {
            holder: scopes
            for holder, scopes in self._held.items()
            if any(holder in scope.held for scope in scopes)
        }
        for queue in self._queues.values():
            for holder in [holder for holder, turn in queue.turns.items() if now - turn >= LONGEST]:
                queue.leave(holder)

    def _scopes(self, place: Place) -> Iterable[_Scope]:
        yield self._cluster
        yield self._namespaces.setdefault(place.namespace, _Scope(self._pace.namespace))
        if place.node:
            yield self._nodes.setdefault(place.node, _Scope(self._pace.node))
