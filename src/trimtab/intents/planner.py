"""Planner: finds the deeds that bring a workload from what is to what is wanted.

Time is passed in twice: `now` is the cluster's, for what rests; the budget's alarm is the caller's, so that a core
without a clock can still be in time.
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
    """How much a plan may cost to find. More of it never finds a worse one."""

    max_states: int = 250
    """How many states may be looked at: the same answer on every machine."""
    is_expired: Callable[[], bool] = never_expires
    """Whether the time is over: the best that was found until then is the answer."""


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
        """The plan for one intent. It never passes a limit, and does nothing on what is unknown."""
        ...


PLANNERS: Family[Planner] = Family(noun="planner", group="trimtab.planners")


def planner(name: str, **settings: Any) -> Planner:
    """A new planner of this name; settings not given have their defaults."""
    made: Planner = PLANNERS.load_type(name)(PLANNERS.parse_settings(name, settings))  # type: ignore[call-arg]
    return made
