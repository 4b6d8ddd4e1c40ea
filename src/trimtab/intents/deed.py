"""Deed: one step of a plan: which actuator, with what, and what is expected of it.

A deed is a proposal. Performing it is an edge's business, which knows the actuator by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from trimtab.intents.state import State


class Deed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    actuator: str
    parameters: Mapping[str, Any]
    """What the actuator needs to do it; JSON, so that it can be remembered and sent to a plugin."""
    after: State
    """What is expected once it is done."""
    disruption: float = 0.0
    """What doing it costs by itself, in cores for an hour: restarts, warm-ups. Never negative."""

    def told(self) -> str:
        """For people: what it does, in a few words."""
        return f"{self.actuator} {', '.join(f'{name} {_short(value)}' for name, value in self.parameters.items())}"


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
