"""The effect model interface: the change of one objective when a workload changes, and its uncertainty.

A model never predicts an objective from scratch: it changes a measured value. A model with a constant relative
error therefore still predicts the effect of a change correctly.
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
"""The changes of an objective's logarithm in each state, and their standard deviations."""


MAX_SPREAD = 50.0
"""The largest accepted standard deviation: beyond it a model knows nothing, and sums of its powers would overflow."""


class EffectModel(Protocol):
    def predict_changes(self, batch: InputBatch, value: float) -> PredictedChanges:
        """Predict the change of an objective from the batch's first state to each of the others.

        Many states are predicted at once, because a compiled model needs little more time for ten than for one.
        """
        ...

    def encode(self) -> dict[str, Any]:
        """Encode the model as JSON for the store."""
        ...


class EffectModels(msgspec.Struct, frozen=True, kw_only=True):
    """All models of one Intent, by objective."""

    learned_models: Mapping[str, EffectModel] = {}
    """The learned model of each objective, which covers all its inputs."""
    user_models: Mapping[tuple[str, str], EffectModel] = {}
    """The users' models for one objective and one group of actions, which take precedence."""

    def predict(
        self, before: TargetState, changed: Sequence[TargetState], *, group: str
    ) -> list[TargetState]:
        """Return the states in `changed`, which actions of this group reach from `before`, with predicted objectives.

        Standard deviations are added, because errors of one model are correlated and the sum is the worst case.
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
                try:
                    values, doubts = _predict_values(model, ways, value)
                except _ImpossiblePredictionError:
                    if (name, group) in self.user_models:
                        raise TrimtabError(
                            f"the effect of {group} on {name} is out of range, from {value:.4g}: correct its parameters"
                        ) from None
                    # Measurements of many orders of magnitude: what was fitted to them knows nothing of this state.
                    values, doubts = [value] * len(changed), [MAX_SPREAD] * len(changed)
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


class _ImpossiblePredictionError(ArithmeticError):
    """A model predicts values or an uncertainty that nothing can have."""


def _predict_values(
    model: EffectModel, ways: InputBatch, value: float
) -> tuple[list[float], Sequence[float]]:
    """Predict the values of an objective and their uncertainty; reject impossible ones."""
    try:
        moves, doubts = model.predict_changes(ways, value)
        values = [value * exp(by) for by in moves]
        possible = isfinite(sum(values) + sum(doubts)) and 0.0 <= min(doubts) <= max(doubts) <= MAX_SPREAD
    except OverflowError:
        possible = False
    if not possible:
        raise _ImpossiblePredictionError
    return values, doubts
