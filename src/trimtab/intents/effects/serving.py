"""Serving: what moves an availability: the pods, of which one that serves is enough.

Of a set it is 1 - Π(1 - a). What is measured may count otherwise, such as requests that were answered: so it is the
unavailable share that moves in proportion to the set's, not the number that is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import log, prod
from typing import Any, Self

from trimtab.intents.effects.model import STILL, Move
from trimtab.intents.state import State

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

    def move(self, before: State, after: State, value: float) -> Move:
        was, would = self.missing(before), self.missing(after)
        if was == would:
            return STILL
        missing = (1.0 - value) * would / was if value < 1.0 else would
        return Move(log(max(_LEAST, 1.0 - min(1.0, missing)) / value), 0.0)

    def missing(self, state: State) -> float:
        """The share of time in which no pod serves; never nothing at all."""
        pods = state.pods[: state.replicas]
        known = prod(1.0 - min(pod.availability, 1.0 - _LEAST) for pod in pods)
        return float(known * (1.0 - self.new) ** max(0, state.replicas - len(pods)))

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
