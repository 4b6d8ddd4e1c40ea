"""Actuator: something that can be done to a workload, as the planner sees it: what would come of it.

How it is done to a cluster is not said here: that is an edge, and a plugin's own. An actuator that lies about what
would come of it costs a bad plan, which is judged and learned from; it cannot pass a guardrail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from trimtab.intents.action import IntentAction
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.objective import Goal
from trimtab.intents.state import TargetState
from trimtab.plugins import Family


class Actuator(Protocol):
    settings_type: ClassVar[type[Any]]

    name: str
    """How deeds, settings and effects name it."""
    group: str
    """What it turns. A plan has at most one deed of a group: scaling out and in at once makes no sense."""
    diminishing: bool
    """Whether its deeds bring no more after other deeds than they would now, and cost no less. Then the planner can
    tell early what is out of reach; where it is not known, as of a plugin, say false."""
    disruption: float
    """The least that a deed costs by itself, in cores for an hour."""

    def candidates(
        self, state: TargetState, *, goal: Goal, effects: EffectModels, limits: PlanConstraints
    ) -> Sequence[IntentAction]:
        """What could be done now, at most a handful; the same for the same arguments."""
        ...


class SafeguardAction(NamedTuple):
    """An action that comes before any objective, and why."""

    action: IntentAction
    reason: str
    is_deadly: bool
    """Whether pods die without it: then it waits for no rest."""


@runtime_checkable
class Safeguard(Protocol):
    """An actuator that also keeps things safe, whatever is known of the objectives."""

    def safeguard(self, state: TargetState, *, goal: Goal, limits: PlanConstraints) -> SafeguardAction | None:
        """Return what must be done lest pods die, or starve while no objective shows it; None: nothing."""
        ...


ACTUATORS: Family[Actuator] = Family(noun="actuator", group="trimtab.actuators")


def actuator(name: str, **settings: Any) -> Actuator:
    """A new actuator of this name; settings not given have their defaults."""
    made: Actuator = ACTUATORS.load_type(name)(ACTUATORS.parse_settings(name, settings))  # type: ignore[call-arg]
    return made
