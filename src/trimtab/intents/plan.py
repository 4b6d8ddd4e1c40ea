"""Plans: their actions, reasons and expected outcomes.

A plan states whether it is expected to meet all objectives or is a compromise, and whether a better plan may exist
that was not examined.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trimtab.api.intent import ObjectiveVerdict, PlanPurpose
from trimtab.intents.action import IntentAction
from trimtab.intents.objective import Objective

Purpose = PlanPurpose
"""The purpose of a plan, as in an Intent's status."""


class ExpectedOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The expected outcome of one objective."""

    objective: str
    now: float | None
    expected: float | None
    low: float | None
    high: float | None
    """The upper end of the range that is expected with the planner's confidence."""
    wanted: float
    verdict: ObjectiveVerdict
    """The verdict on the worse end of the range."""


class PlanAlternative(msgspec.Struct, frozen=True, kw_only=True):
    """Another plan that was examined."""

    actions: tuple[IntentAction, ...]
    outcomes: tuple[ExpectedOutcome, ...]
    cost: float
    utility: float
    meets_all: bool


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    intent: str
    purpose: Purpose
    actions: tuple[IntentAction, ...] = ()
    is_urgent: bool = False
    """True if the plan keeps pods alive; it then ignores the cool-down after a revert."""
    why: tuple[str, ...] = ()
    """The reasons for users, each with its values."""
    outcomes: tuple[ExpectedOutcome, ...] = ()
    cost: float = 0.0
    """The cost of the workload after the plan, including the actions, in core-hours."""
    saved: float = 0.0
    """The saving compared with now; negative if the plan costs more."""
    utility: float = 1.0
    """The share of the objectives that is expected to be met, by weight; 1 is all."""
    is_optimal: bool = True
    """True if every state that could be better was examined."""
    alternatives: tuple[PlanAlternative, ...] = ()
    """The next best plans, best first."""
    expanded_states: int = 0
    """The number of states that were examined."""

    @property
    def is_compromise(self) -> bool:
        return self.purpose is Purpose.COMPROMISE


def compute_utility(objectives: Sequence[Objective], deficits: Sequence[float]) -> float:
    """Return the weighted utility between 0 and 1; 1 means that all objectives are reached."""
    whole = had = 0.0
    for objective, deficit in zip(objectives, deficits, strict=True):
        whole += objective.weight
        had += objective.weight * (1.0 if deficit <= 0 else 1.0 / (1.0 + deficit))
    return had / whole if whole > 0 else 1.0
