"""Deed: one step of a plan: which actuator, with what, and what is expected of it.

A deed is a proposal. Performing it is an edge's business, which knows the actuator by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from trimtab.intents.state import TargetState


class IntentAction(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    actuator: str
    parameters: Mapping[str, Any]
    """What the actuator needs to do it; JSON, so that it can be remembered and sent to a plugin."""
    after: TargetState
    """What is expected once it is done."""
    disruption: float = 0.0
    """What doing it costs by itself, in cores for an hour: restarts, warm-ups. Never negative."""

    def describe(self) -> str:
        """For people: what it does, in a few words."""
        said = [
            f"{name} {_format_value(value)}" for name, value in self.parameters.items() if value is not None
        ]
        return f"{self.actuator} {', '.join(said)}"


def _format_value(value: Any) -> str:
    """Of bytes, people count the digits."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
