"""The planner interface: find the actions that lead from the current state to the goal.

Time has two arguments: `now` is the cluster's time, for cool-downs; the budget's expiry is the caller's, so that
the core can meet a deadline without a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import msgspec

from trimtab.intents.actuator import Actuator
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.objective import Goal
from trimtab.intents.plan import Plan
from trimtab.intents.state import TargetState
from trimtab.plugins import Family


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
