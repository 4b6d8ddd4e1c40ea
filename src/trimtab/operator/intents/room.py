"""How much more there is to have: on the nodes, of quotas, of the caps of namespaces, at one moment.

What one intent was granted in a turn is taken off at once, so that the next does not count on it too: the cluster
itself tells of it only later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

import numpy as np

from trimtab.intents.state import State
from trimtab.kube.limits import Quota
from trimtab.kube.nodes import Node
from trimtab.kube.pods import Pod
from trimtab.sizing.surroundings import quota_left


class Room:
    """All nodes and namespaces."""

    def __init__(self, nodes: Iterable[Node], pods: Iterable[Pod], quotas: Iterable[Quota]) -> None:
        usable = [node for node in nodes if node.ready]
        self._places = {node.name: place for place, node in enumerate(usable)}
        self._open = np.array([not node.unschedulable for node in usable], dtype=bool)
        free = [
            (n.allocatable.cpu / 1000, float(n.allocatable.memory), float(n.allocatable.pods)) for n in usable
        ]
        self._free = np.array(free, dtype=float).reshape(len(usable), 3)
        for pod in pods:
            place = self._places.get(pod.node)
            if place is not None and pod.phase in {"Pending", "Running", ""}:
                asked = [each.resources for each in pod.containers if each.role != "init"]
                self._free[place] -= (
                    sum(each.cpu_request or 0 for each in asked) / 1000,
                    sum(each.memory_request or 0 for each in asked),
                    1,
                )
        by_namespace: dict[str, list[Quota]] = {}
        for quota in quotas:
            by_namespace.setdefault(quota.namespace, []).append(quota)
        self._quota = {space: _left(theirs) for space, theirs in by_namespace.items()}

    def of_quota(self, namespace: str) -> tuple[float, float]:
        """Cores and bytes that a namespace's quotas leave."""
        cpu, memory = self._quota.get(namespace, (inf, inf))
        return cpu, memory

    def pods(self, cpu: float, memory: float) -> float:
        """How many more pods of this size fit."""
        free = np.maximum(self._free[self._open], 0.0)
        if not len(free):
            return 0.0
        fitting = free[:, 2].copy()
        for column, each in ((0, cpu), (1, memory)):
            if each > 0:
                fitting = np.minimum(fitting, np.floor(free[:, column] / each + 1e-9))
        return float(fitting.sum())

    def beside(self, state: State) -> tuple[float, float]:
        """Cores and bytes by which each pod may grow where it is: what the tightest of its nodes leaves."""
        on: dict[int, int] = {}
        for pod in state.pods:
            if (place := self._places.get(pod.node)) is not None:
                on[place] = on.get(place, 0) + 1
        if not on:
            return 0.0, 0.0
        shares = [np.maximum(self._free[place, :2], 0.0) / count for place, count in on.items()]
        least = np.min(shares, axis=0)
        return float(least[0]), float(least[1])

    def take(self, namespace: str, before: State, after: State) -> None:
        """A deed was granted that leads from the one state to the other."""
        was, would = before.requested(), after.requested()
        for pod in before.pods:
            if (place := self._places.get(pod.node)) is not None:
                self._free[place, 0] -= max(0.0, would[0] - was[0])
                self._free[place, 1] -= max(0.0, would[1] - was[1])
        for _ in range(min(after.replicas - before.replicas, 1000)):
            fits = self._open & (self._free >= (would[0], would[1], 1)).all(axis=1)
            if not fits.any():
                break
            roomiest = int(np.argmax(np.where(fits, self._free[:, 0], -inf)))
            self._free[roomiest] -= (would[0], would[1], 1)
        cpu, memory = self.of_quota(namespace)
        more = [would[i] * after.replicas - was[i] * before.replicas for i in (0, 1)]
        self._quota[namespace] = cpu - max(0.0, more[0]), memory - max(0.0, more[1])


class Caps:
    """What the targets of each namespace's intents ask for together."""

    def __init__(self, targets: Mapping[str, Iterable[State]]) -> None:
        self._asked = {space: _total(states) for space, states in targets.items()}

    def asked(self, namespace: str) -> tuple[float, float, float]:
        """Cores, bytes and pods."""
        return self._asked.get(namespace, (0.0, 0.0, 0.0))

    def take(self, namespace: str, before: State, after: State) -> None:
        was, would, asked = _total([before]), _total([after]), self.asked(namespace)
        self._asked[namespace] = (
            asked[0] + max(0.0, would[0] - was[0]),
            asked[1] + max(0.0, would[1] - was[1]),
            asked[2] + max(0.0, would[2] - was[2]),
        )


def _total(states: Iterable[State]) -> tuple[float, float, float]:
    cpu = memory = pods = 0.0
    for state in states:
        each = state.requested()
        cpu += each[0] * state.replicas
        memory += each[1] * state.replicas
        pods += state.replicas
    return cpu, memory, pods


def _left(quotas: Iterable[Quota]) -> tuple[float, float]:
    left = quota_left(quotas)
    cpu = inf if left.cpu_request is None else left.cpu_request / 1000
    return cpu, inf if left.memory_request is None else float(left.memory_request)
