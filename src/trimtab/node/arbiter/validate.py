"""Holds values to the kernel's rules before the kernel does: within the parent, and no knob against another.

What one strategy wished for one cgroup has consequences for cgroups that nobody wished for: a child of a smaller
parent has to shrink along. Such values are added here. From the top down, so that a parent is settled first:

- a value that its knob never takes is refused, and the rest goes on;
- `cpuset.cpus` lies within the parent's, and is not empty. cgroup v1 refuses anything else, also for the children of a
  shrinking parent; v2 clips by itself;
- `cpu.quota` a period is no more than the parent's (v1 refuses more; v2 makes nothing of it);
- `cpu.burst` is no more than the quota: both versions refuse more, and also a quota below the burst;
- `memory.min` and `memory.low` are no more than the parent's, which would take the excess away again, and no more than
  `memory.max`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from trimtab.node.arbiter.requests import Spot
from trimtab.node.arbiter.value_order import Value, meet, within
from trimtab.node.cgroups import UNLIMITED, Version
from trimtab.node.cgroups.knobs import (
    CPU_BURST,
    CPU_PERIOD,
    CPU_QUOTA,
    CPUSET_CPUS,
    MEMORY_LOW,
    MEMORY_MAX,
    MEMORY_MIN,
)


class World(Protocol):
    """The cgroups as they would be without us."""

    @property
    def version(self) -> Version: ...

    def value(self, spot: Spot) -> Value | None:
        """What a knob held before us, or holds if we never touched it; None where there is no such thing."""
        ...

    def children(self, path: str) -> Iterable[str]:
        """The cgroups right below, by their paths."""
        ...


@dataclass(frozen=True, slots=True)
class Refusal:
    """A value that no kernel would take."""

    spot: Spot
    why: str

    def __str__(self) -> str:
        return f"{self.spot}: {self.why}"


def admit(wanted: Mapping[Spot, Value], world: World) -> tuple[dict[Spot, Value], list[Refusal]]:
    """What can be written of what is wanted, with what follows from it for others."""
    return _Admission(wanted, world).run()


class _Admission:
    def __init__(self, wanted: Mapping[Spot, Value], world: World) -> None:
        self._world = world
        self._admitted: dict[Spot, Value] = {}
        self._refused: list[Refusal] = []
        self._wanted = dict(wanted)
        self._queue = [_turn(spot) for spot in wanted]
        heapq.heapify(self._queue)

    def run(self) -> tuple[dict[Spot, Value], list[Refusal]]:
        by_key = {spot.key: spot for spot in self._wanted}
        while self._queue:
            *_, path, name = heapq.heappop(self._queue)
            spot = by_key[path, name]
            value = self._clipped(spot, self._wanted[spot])
            if problem := _problem(spot, value):
                self._refused.append(Refusal(spot, problem))
                continue
            self._admitted[spot] = value
            for other in self._affected(spot):
                if other not in self._wanted:
                    undisturbed = self._world.value(other)
                    if undisturbed is not None and self._clipped(other, undisturbed) != undisturbed:
                        self._wanted[other] = undisturbed
                        by_key[other.key] = other
                        heapq.heappush(self._queue, _turn(other))
        return self._admitted, self._refused

    def _final(self, spot: Spot | None) -> Value | None:
        if spot is None:
            return None
        found = self._admitted.get(spot)
        return self._world.value(spot) if found is None else found

    def _affected(self, spot: Spot) -> list[Spot]:
        """Whose value may not stand any more, now that this one is settled."""
        found = []
        if self._world.version is Version.V1 and spot.knob in (CPUSET_CPUS, CPU_QUOTA):
            found += [Spot(child, spot.knob) for child in self._world.children(spot.path)]
        if spot.knob == CPU_QUOTA:
            found.append(Spot(spot.path, CPU_BURST))
        return found

    def _clipped(self, spot: Spot, value: Value) -> Value:
        if spot.knob == CPUSET_CPUS:
            return self._cpus(spot, value)
        if spot.knob == CPU_QUOTA:
            return self._quota(spot, value)
        if spot.knob == CPU_BURST:
            quota = self._final(Spot(spot.path, CPU_QUOTA))
            return value if quota is None else meet(value, quota)
        if spot.knob in (MEMORY_MIN, MEMORY_LOW):
            for limit in (self._final(spot.parent), self._final(Spot(spot.path, MEMORY_MAX))):
                value = value if limit is None else meet(value, limit)
        return value

    def _cpus(self, spot: Spot, value: Value) -> Value:
        parent = self._final(spot.parent)
        if not parent or within(value, parent):  # in v2 an empty set is what the next one up has
            return value
        return meet(value, parent) or parent

    def _quota(self, spot: Spot, value: Value) -> Value:
        parent = self._final(spot.parent)
        if self._world.version is Version.V2 or not isinstance(parent, int) or not isinstance(value, int):
            return value
        if UNLIMITED in (parent, value):
            return value
        return min(value, parent * self._period(spot) // self._period(spot.parent))

    def _period(self, spot: Spot | None) -> int:
        found = self._world.value(Spot(spot.path, CPU_PERIOD)) if spot else None
        return found if isinstance(found, int) else 100_000


def _turn(spot: Spot) -> tuple[int, int, str, str]:
    """From the top down; in one cgroup the quota before its burst."""
    return spot.depth, spot.knob == CPU_BURST, *spot.key


def _problem(spot: Spot, value: Value) -> str:
    if value == frozenset():
        return "no CPU is left"
    return spot.knob.problem(value)
