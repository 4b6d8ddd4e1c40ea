"""What is known of one objective: a number, or why there is none.

An objective that cannot be measured is unknown, which is neither met nor missed: nothing is done about it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """A number, or the reason that there is none."""

    value: float | None
    why: str = ""
    """Why it is unknown; empty where it is not."""

    @classmethod
    def of(cls, value: float) -> Reading:
        """A number that was measured; NaN and the infinities are none."""
        return cls(value) if math.isfinite(value) else unknown(f"the query gives {value}, which is no number")


def unknown(why: str) -> Reading:
    return Reading(None, why)
