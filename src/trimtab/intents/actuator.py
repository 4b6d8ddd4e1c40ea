"""The actuator interface: the planner asks an actuator for possible actions and their expected results.

An action is a proposal: the step of a plan, with its actuator, its parameters and the state expected after it. The
executor looks up the actuator by its name and carries the action out; that is not part of this interface. An actuator
with wrong predictions causes a bad plan, which is evaluated and learned from; it cannot violate a guardrail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import msgspec

from trimtab.api.quantity import format_short
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.objective import Goal
from trimtab.intents.state import TargetState
from trimtab.plugins import Family
from trimtab.printable import escape_invisible


class IntentAction(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    actuator: str
    parameters: Mapping[str, Any]
    """The parameters of the actuator, as JSON, so that they can be stored and sent to a plugin."""
    after: TargetState
    """The state that is expected after the action."""
    disruption: float = 0.0
    """The cost of the action itself, in core-hours, such as for restarts and warm-ups. It is never negative."""

    def describe(self) -> str:
        """Describe the action in a few words for users."""
        parts = [
            f"{name} {_format_value(value)}" for name, value in self.parameters.items() if value is not None
        ]
        return escape_invisible(f"{self.actuator} {', '.join(parts)}")


def _format_value(value: Any) -> str:
    """Format a value; a number of a million or more is an amount of bytes."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.6g}" if abs(value) < 1e6 else format_short("memory", value)


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
