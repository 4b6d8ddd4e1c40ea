"""Order writes so that a child never allows more than its parent.

Growing values come first, top down, each to the maximum or union of current and wanted. Shrinking values
follow, bottom up, to the exact value. In one cgroup a quota grows before its burst and shrinks after it.
"""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.node.arbiter.requests import KnobRef
from trimtab.node.arbiter.value_order import Value, join
from trimtab.node.cgroups.knobs import CPU_BURST

KnobWrite = tuple[KnobRef, Value]


def order_writes(wanted: Mapping[KnobRef, Value], now: Mapping[KnobRef, Value]) -> list[KnobWrite]:
    """Return the writes from the current to the wanted values; none for equal ones."""
    spots = sorted((spot for spot in wanted if wanted[spot] != now[spot]), key=_depth_key)
    growing = {spot: join(now[spot], wanted[spot]) for spot in spots}
    return [(spot, growing[spot]) for spot in spots if growing[spot] != now[spot]] + [
        (spot, wanted[spot]) for spot in reversed(spots) if growing[spot] != wanted[spot]
    ]


def _depth_key(ref: KnobRef) -> tuple[int, bool, tuple[str, str]]:
    return ref.depth, ref.knob == CPU_BURST, ref.key
