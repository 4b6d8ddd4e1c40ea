"""Model: how one objective moves when a workload changes, and how sure that is.

A model never says what an objective will be from scratch: it moves what was measured. So a model that is off by a
factor everywhere is still right about what a change brings.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from typing import Any, Protocol

import msgspec

from trimtab.intents.state import State


class Move(msgspec.Struct, frozen=True, gc=False):
    """How the logarithm of an objective moves."""

    by: float
    spread: float
    """Its standard deviation."""


STILL = Move(0.0, 0.0)


class Model(Protocol):
    def move(self, before: State, after: State, value: float) -> Move:
        """How an objective of this value moves from the one state to the other, whatever was changed between."""
        ...

    def data(self) -> dict[str, Any]:
        """The model as JSON, as the store keeps it."""
        ...


class Effects(msgspec.Struct, frozen=True, kw_only=True):
    """All models of one intent, by objective."""

    learned: Mapping[str, Model] = {}
    """A model of everything that moves the objective."""
    given: Mapping[tuple[str, str], Model] = {}
    """Models for one objective and one group of deeds, given by a person: they win."""

    def after(self, before: State, after: State, *, group: str) -> State:
        """What is expected of `after`, which a deed of this group has made of `before`: its objectives, moved.

        Spreads add up: errors of one model go together, and the sum is their worst case.
        """
        objectives: dict[str, float | None] = {}
        spread: dict[str, float] = {}
        for name, value in before.objectives.items():
            model = self.given.get((name, group)) or self.learned.get(name)
            was = before.spread.get(name, 0.0)
            move = STILL if model is None or value is None or value <= 0 else model.move(before, after, value)
            objectives[name] = value if value is None or move.by == 0 else value * exp(move.by)
            if was or move.spread:
                spread[name] = was + move.spread
        return msgspec.structs.replace(after, objectives=objectives, spread=spread)
