"""The actuator interface: the planner asks an actuator for possible actions and their expected results.

An actuator's execution against a cluster is not part of this interface. An actuator with wrong predictions causes
a bad plan, which is evaluated and learned from; it cannot violate a guardrail.
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
    """The name by which actions, settings and effects refer to the actuator."""
    group: str
    """The group of the actuator. A plan has at most one action of each group, because scaling out and in at once
    makes no sense."""
    diminishing: bool
    """True if its actions gain no more, and cost no less, after other actions than they do now. The planner can
    then exclude unreachable goals early. It is false for plugins, whose behaviour is not known."""
    disruption: float
    """The lowest cost of an action itself, in core-hours."""

    def candidates(
        self, state: TargetState, *, goal: Goal, effects: EffectModels, limits: PlanConstraints
    ) -> Sequence[IntentAction]:
        """Return the actions that are possible now, at most about ten. The result depends on the arguments only."""
        ...


class SafeguardAction(NamedTuple):
    """An action that takes precedence over all objectives, and its reason."""

    action: IntentAction
    reason: str
    is_deadly: bool
    """True if pods would be killed without the action. It then ignores cool-downs."""


@runtime_checkable
class Safeguard(Protocol):
    """An actuator that can also protect pods, independently of the objectives."""

    def safeguard(self, state: TargetState, *, goal: Goal, limits: PlanConstraints) -> SafeguardAction | None:
        """Return the action that prevents OOM kills, or CPU starvation that no objective shows; None if there is
        none.
        """
        ...


ACTUATORS: Family[Actuator] = Family(noun="actuator", group="trimtab.actuators")


def actuator(name: str, **settings: Any) -> Actuator:
    """Create the actuator with this name; omitted settings have their defaults."""
    made: Actuator = ACTUATORS.load_type(name)(ACTUATORS.parse_settings(name, settings))  # type: ignore[call-arg]
    return made
