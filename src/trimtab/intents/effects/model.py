"""Model: how one objective moves when a workload changes, and how sure that is.

A model never says what an objective will be from scratch: it moves what was measured. So a model that is off by a
factor everywhere is still right about what a change brings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, isfinite
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from trimtab.errors import TrimtabError
from trimtab.intents.effects.inputs import InputBatch, build_input_batch
from trimtab.intents.state import TargetState

PredictedChanges = tuple[Sequence[float], Sequence[float]]
"""How the logarithm of an objective moves to each place, and the standard deviation of that."""


MAX_SPREAD = 50.0
"""Whoever is less sure than that knows nothing, and the powers of a few such are more than a number can be."""
LOAD_GROUP = "load"
"""The group of what nobody does: load that comes and goes."""


class EffectModel(Protocol):
    def predict_changes(self, batch: InputBatch, value: float) -> PredictedChanges:
        """How an objective of this value moves from the fan's first place to each of the others.

        Many at once, since a planner looks at many and a compiled model costs little more for ten than for one.
        """
        ...

    def encode(self) -> dict[str, Any]:
        """The model as JSON, as the store keeps it."""
        ...


class EffectModels(msgspec.Struct, frozen=True, kw_only=True):
    """All models of one intent, by objective."""

    learned_models: Mapping[str, EffectModel] = {}
    """A model of everything that moves the objective."""
    user_models: Mapping[tuple[str, str], EffectModel] = {}
    """Models for one objective and one group of deeds, given by a person: they win."""

    def predict(
        self, before: TargetState, changed: Sequence[TargetState], *, group: str
    ) -> list[TargetState]:
        """What is expected of each of `changed`, which deeds of this group have made of `before`.

        Spreads add up: errors of one model go together, and the sum is their worst case.
        """
        if not changed:
            return []
        ways = build_input_batch(before, changed)
        names = tuple(before.objectives)
        columns: list[Sequence[float | None]] = []
        spreads: list[Sequence[float]] = []
        for name, value in before.objectives.items():
            unsure = before.log_spread.get(name, 0.0)
            model = self.user_models.get((name, group)) or self.learned_models.get(name)
            if model is None or value is None or value <= 0:
                columns.append([value] * len(changed))
                spreads.append([unsure] * len(changed))
            else:
                values, doubts = _predict_values(model, ways, value, what=f"the effect of {group} on {name}")
                columns.append(values)
                spreads.append([unsure + doubt for doubt in doubts])
        return [
            replace(
                each,
                objectives=dict(zip(names, values, strict=True)),
                log_spread=dict(zip(names, unsures, strict=True)),
            )
            for each, values, unsures in zip(
                changed, zip(*columns, strict=True), zip(*spreads, strict=True), strict=True
            )
        ]

    def predict_under_load(self, state: TargetState, load: float) -> TargetState:
        """What is expected under another load, such as one that is forecast: planned on, it is prepared for."""
        (ahead,) = self.predict(state, [replace(state, load=load)], group=LOAD_GROUP)
        return ahead


def _predict_values(
    model: EffectModel, ways: InputBatch, value: float, *, what: str
) -> tuple[list[float], Sequence[float]]:
    """What an objective becomes at each place, and the doubt; those who give numbers by hand may give such as cannot be."""
    try:
        moves, doubts = model.predict_changes(ways, value)
        values = [value * exp(by) for by in moves]
        possible = isfinite(sum(values) + sum(doubts)) and 0.0 <= min(doubts) <= max(doubts) <= MAX_SPREAD
    except OverflowError:
        possible = False
    if not possible:
        raise TrimtabError(f"{what} is more than can be, from {value:.4g}: mend its numbers")
    return values, doubts
