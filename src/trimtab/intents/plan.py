"""Plan: what is to be done, why, and what is expected of it.

It says of itself whether it is thought to meet everything, or is the best that can be had, and whether a better one
may exist that was not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trimtab.api.intent import ObjectiveVerdict, PlanPurpose
from trimtab.intents.action import IntentAction
from trimtab.intents.objective import Objective

Purpose = PlanPurpose
"""What a plan is for, in the words of an Intent's status."""


class ExpectedOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is expected of one objective."""

    objective: str
    now: float | None
    expected: float | None
    low: float | None
    high: float | None
    """Between these it will be, as sure as the planner was asked to be."""
    wanted: float
    verdict: ObjectiveVerdict
    """Of its worse end."""


class PlanAlternative(msgspec.Struct, frozen=True, kw_only=True):
    """Another way that was looked at."""

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
    """Whether it keeps pods alive: then it waits for no rest after a revert."""
    why: tuple[str, ...] = ()
    """For people: the reasons, each with its values."""
    outcomes: tuple[ExpectedOutcome, ...] = ()
    cost: float = 0.0
    """What the workload costs after it, and the doing, in cores for an hour."""
    saved: float = 0.0
    """What it costs less than now; negative: more."""
    utility: float = 1.0
    """How much of what is wanted is expected: 1 is all of it."""
    is_optimal: bool = True
    """Whether all was looked at that could have been better."""
    alternatives: tuple[PlanAlternative, ...] = ()
    """The next best, best first."""
    expanded_states: int = 0
    """How many states were looked at."""

    @property
    def is_compromise(self) -> bool:
        return self.purpose is Purpose.COMPROMISE


def compute_utility(objectives: Sequence[Objective], deficits: Sequence[float]) -> float:
    """Between 0 and 1; 1 is all."""
    whole = had = 0.0
    for objective, deficit in zip(objectives, deficits, strict=True):
        whole += objective.weight
        had += objective.weight * (1.0 if deficit <= 0 else 1.0 / (1.0 + deficit))
    return had / whole if whole > 0 else 1.0
