"""What is known of one objective: a number, or why there is none.

An objective that cannot be measured is unknown, which is neither met nor missed: nothing is done about it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_ROUNDED = 1.01


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


def as_share(reading: Reading, *, wanted: float) -> Reading:
    """Of an availability: a percentage is none, and no plan could be made by it. What is a little over was rounded so."""
    if wanted > 1:
        return unknown(f"{wanted:g} is wanted, and an availability is at most 1: write 0.999 for 99.9 %")
    if reading.value is None or reading.value <= 1:
        return reading
    if reading.value <= _ROUNDED:
        return Reading(1.0)
    return unknown(f"the query gives {reading.value:g}, and an availability is at most 1: divide it by 100")
