"""Serving: what moves an availability: the pods, of which one that serves is enough.

Of a set it is 1 - Π(1 - a). What is measured may count otherwise, such as requests that were answered: so it is the
unavailable share that moves in proportion to the set's, not the number that is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp, fsum, log
from typing import Any, Self

from trimtab.intents.effects.inputs import Fan, Knobs
from trimtab.intents.effects.model import Moves
from trimtab.intents.state import PodState, State

KIND = "serving"
NEW = 0.99
"""How available a new pod is thought to be."""
_COUNTS_AS = 20
"""What was thought beforehand counts as so many pods."""
_LEAST = 1e-9


class Serving:
    """A model of availability: only what a new pod is expected to be is learned."""

    def __init__(self, new: float = NEW, *, samples: int = 0) -> None:
        self.new, self.samples = new, samples

    def moves(self, fan: Fan, value: float) -> Moves:
        was = fan.places[0]
        shares = {id(was.pods): _share(was.pods)}
        before = self._missing(was, shares)
        found = []
        for each in fan.places[1:]:
            if each.pods is was.pods and each.replicas == was.replicas:
                found.append(0.0)
                continue
            missing = self._missing(each, shares)
            if value < 1.0:
                missing += log(1.0 - value) - before
            found.append(log(max(_LEAST, 1.0 - exp(min(0.0, missing))) / value))
        return found, [0.0] * len(found)

    def _missing(self, at: Knobs, shares: dict[int, float]) -> float:
        """The logarithm of the share of time in which no pod serves, which of forty pods is less than a float can be;
        `shares` are those of pods that were looked at.
        """
        share = shares.get(id(at.pods))
        if share is None:
            share = shares[id(at.pods)] = _share(at.pods)
        new = at.replicas - len(at.pods)
        return share + new * log(max(_LEAST, 1.0 - self.new)) if new > 0 else share

    @classmethod
    def learn(cls, states: Iterable[State]) -> Self:
        """From the pods that were seen, each as it was seen last."""
        last = {pod.name: pod.availability for state in states for pod in state.pods}
        share = (sum(last.values()) + NEW * _COUNTS_AS) / (len(last) + _COUNTS_AS)
        return cls(min(share, NEW), samples=len(last))

    def data(self) -> dict[str, Any]:
        return {"model": KIND, "version": 1, "new": self.new, "samples": self.samples}

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        return cls(min(1.0, max(0.0, float(data["new"]))), samples=int(data.get("samples", 0)))


def _share(pods: Sequence[PodState]) -> float:
    """The logarithm of the share of time in which none of these serves; never of nothing at all."""
    return fsum([log(1.0 - min(pod.availability, 1.0 - _LEAST)) for pod in pods])
