"""Room: what nodes and quotas have left, and what one workload may become within it.

It is a ledger for one cycle: what a plan takes is gone for those after it. What a plan gives back is not counted until
it is seen, since it may not happen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import inf

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from trimtab.intents.constraints import Limits
from trimtab.intents.state import State

Floats = npt.NDArray[np.float64]

_GRACE = 1e-9


class Free(msgspec.Struct, frozen=True):
    """What is left of a node, or of a quota."""

    cpu: float = inf
    memory: float = inf
    pods: float = inf


class Room:
    def __init__(self, nodes: Mapping[str, Free], quotas: Mapping[str, Free] | None = None) -> None:
        """What each node has left, and what the quota or cap of each namespace does; one that is not named has all."""
        self._places = {name: place for place, name in enumerate(nodes)}
        rows = [(each.cpu, each.memory, each.pods) for each in nodes.values()]
        self._nodes: Floats = np.array(rows, dtype=np.float64).reshape(-1, 3)
        self._known: dict[frozenset[str], npt.NDArray[np.intp]] = {}
        self._quotas = {name: [each.cpu, each.memory, each.pods] for name, each in (quotas or {}).items()}

    def narrowed(self, limits: Limits, state: State, namespace: str) -> Limits:
        """These limits, and what there is room for now."""
        cpu, memory, pods = self._quotas.get(namespace, (inf, inf, inf))
        in_place = self._growth(state)
        return replace(
            limits,
            more_cpu=max(0.0, min(limits.more_cpu, cpu)),
            more_memory=max(0.0, min(limits.more_memory, memory)),
            more_pods=max(0.0, min(limits.more_pods, pods, self._slots(state))),
            more_cpu_in_place=min(limits.more_cpu_in_place, in_place[0]),
            more_memory_in_place=min(limits.more_memory_in_place, in_place[1]),
        )

    @property
    def nodes(self) -> Iterable[str]:
        return self._places

    def left(self, node: str) -> float:
        """The cores that a node has left; none where it is not known."""
        place = self._places.get(node)
        return 0.0 if place is None else float(self._nodes[place, 0])

    def left_of_quota(self, namespace: str) -> float:
        return self._quotas.get(namespace, [inf])[0]

    def memory_left(self, node: str) -> float:
        """Return the bytes that a node has left; none where it is not known."""
        place = self._places.get(node)
        return 0.0 if place is None else float(self._nodes[place, 1])

    def memory_left_of_quota(self, namespace: str) -> float:
        return self._quotas.get(namespace, [inf, inf])[1]

    def has_quota(self, namespace: str) -> bool:
        return namespace in self._quotas

    def fits(self, before: State, after: State, namespace: str) -> bool:
        """Whether all that a plan takes is there: larger pods where they are, and then new ones of the new size."""
        return self._booked(before, after, namespace) is not None

    def take(self, before: State, after: State, namespace: str) -> None:
        """Book what a plan takes; call it only when that fits."""
        booked = self._booked(before, after, namespace)
        assert booked is not None
        self._nodes = booked
        quota = self._quotas.get(namespace)
        if quota is not None:
            for place, more in enumerate(taken(before, after)):
                quota[place] -= max(0.0, more)

    def _growth(self, state: State) -> tuple[float, float]:
        """By how much each pod can grow where it is: what its node leaves, shared with its fellows there."""
        counts = Counter(pod.node for pod in state.pods if pod.node in self._places)
        if not counts:
            return inf, inf
        places = np.fromiter((self._places[node] for node in counts), dtype=np.intp)
        share = self._nodes[places, :2] / np.fromiter(counts.values(), dtype=np.float64)[:, None]
        cpu, memory = np.maximum(0.0, share.min(axis=0)).tolist()
        return cpu, memory

    def _slots(self, state: State) -> float:
        """How many more pods of this size the nodes can take."""
        if not self._places:
            return inf
        share = self._share(self._nodes, state, *state.requested())
        return float(np.maximum(0.0, np.floor(share)).sum())

    def _booked(self, before: State, after: State, namespace: str) -> Floats | None:
        quota = self._quotas.get(namespace, (inf, inf, inf))
        if any(
            more > 0 and more > left * (1 + _GRACE)
            for more, left in zip(taken(before, after), quota, strict=True)
        ):
            return None
        nodes = self._nodes.copy()
        cpu, memory = after.requested()
        cpu_was, memory_was = before.requested()
        for pod in after.pods:
            place = self._places.get(pod.node)
            if place is not None:
                nodes[place, 0] -= max(0.0, cpu - cpu_was)
                nodes[place, 1] -= max(0.0, memory - memory_was)
        if (nodes < self._nodes.clip(max=0.0) - _GRACE).any():
            return None
        for _ in range(after.replicas - before.replicas if self._places else 0):
            # Where most is left, as the scheduler spreads by default.
            share = self._share(nodes, before, cpu, memory)
            place = int(share.argmax())
            if share[place] < 1.0 - _GRACE:
                return None
            nodes[place] -= (cpu, memory, 1.0)
        return nodes

    def _share(self, nodes: Floats, state: State, cpu: float, memory: float) -> Floats:
        """How many pods of a size each node can take, as a fraction; none where those of this state may not go."""
        share = np.minimum(
            np.minimum(nodes[:, 0] / max(cpu, 1e-6), nodes[:, 1] / max(memory, 1.0)),
            np.minimum(nodes[:, 2], 1e6),
        )
        share[self._rows(state.closed)] = 0.0
        return share

    def _rows(self, names: frozenset[str]) -> npt.NDArray[np.intp]:
        """Where nodes stand; many workloads are kept off the same ones."""
        if names not in self._known:
            places = [place for name, place in self._places.items() if name in names]
            self._known[names] = np.array(places, dtype=np.intp)
        return self._known[names]


def taken(before: State, after: State) -> tuple[float, float, float]:
    """Cores, bytes and pods that are wanted on top."""
    cpu, memory = after.requested()
    cpu_was, memory_was = before.requested()
    return (
        cpu * after.replicas - cpu_was * before.replicas,
        memory * after.replicas - memory_was * before.replicas,
        float(after.replicas - before.replicas),
    )
