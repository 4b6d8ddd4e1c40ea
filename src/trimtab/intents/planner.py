"""The planner interface: find the actions that lead from the current state to the goal; and its result, the plan.

Time has two arguments: `now` is the cluster's time, for cool-downs; the budget's expiry is the caller's, so that
the core can meet a deadline without a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import msgspec

from trimtab.api.intent import ObjectiveVerdict, PlanPurpose
from trimtab.intents.actuator import Actuator, IntentAction
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.objective import Goal, Objective
from trimtab.intents.state import TargetState
from trimtab.plugins import Family

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


def compute_utility(objectives: Sequence[Objective], deficits: Sequence[float]) -> float:
    """Return the weighted utility between 0 and 1; 1 means that all objectives are reached."""
    whole = had = 0.0
    for objective, deficit in zip(objectives, deficits, strict=True):
        whole += objective.weight
        had += objective.weight * (1.0 if deficit <= 0 else 1.0 / (1.0 + deficit))
    return had / whole if whole > 0 else 1.0


def never_expires() -> bool:
    return False


class SearchBudget(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a search. A larger budget never leads to a worse plan."""

    max_states: int = 250
    """The number of states that may be examined, which gives the same result on every machine."""
    is_expired: Callable[[], bool] = never_expires
    """A callback that returns true when the time is over; the best plan so far is then the result."""


class Planner(Protocol):
    settings_type: ClassVar[type[Any]]

    def plan(
        self,
        state: TargetState,
        goal: Goal,
        *,
        actuators: Sequence[Actuator],
        effects: EffectModels,
        limits: PlanConstraints,
        now: float,
        budget: SearchBudget | None = None,
    ) -> Plan:
        """Make the plan for one Intent. It never violates a constraint, and never acts on unknown objectives."""
        ...


PLANNERS: Family[Planner] = Family(noun="planner", group="trimtab.planners")


def create_planner(name: str, **settings: Any) -> Planner:
    """Create the planner with this name; omitted settings have their defaults."""
    made: Planner = PLANNERS.load_type(name)(PLANNERS.parse_settings(name, settings))  # type: ignore[call-arg]
    return made
