"""Actions: the steps of a plan, each with its actuator, its parameters and the state expected after it.

An action is a proposal. The executor looks up the actuator by its name and carries the action out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from trimtab.intents.state import TargetState


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
        return f"{self.actuator} {', '.join(parts)}"


def _format_value(value: Any) -> str:
    """Format a value; byte counts keep all their digits."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
