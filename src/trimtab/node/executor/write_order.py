"""In which order values are written, so that at no moment a child allows more than its parent.

First from the top down, what grows: each to the greater (or the union) of what it holds and what it shall hold. Then
from the bottom up, what shrinks, to the exact value. In one cgroup a quota grows before its burst and shrinks after it.
"""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.node.arbiter.requests import KnobRef
from trimtab.node.arbiter.value_order import Value, join
from trimtab.node.cgroups.knobs import CPU_BURST

KnobWrite = tuple[KnobRef, Value]


def order_writes(wanted: Mapping[KnobRef, Value], now: Mapping[KnobRef, Value]) -> list[KnobWrite]:
    """The writes that lead from what is to what is wanted; none for what is there already."""
    spots = sorted((spot for spot in wanted if wanted[spot] != now[spot]), key=_depth_key)
    growing = {spot: join(now[spot], wanted[spot]) for spot in spots}
    return [(spot, growing[spot]) for spot in spots if growing[spot] != now[spot]] + [
        (spot, wanted[spot]) for spot in reversed(spots) if growing[spot] != wanted[spot]
    ]


def _depth_key(ref: KnobRef) -> tuple[int, bool, tuple[str, str]]:
    return ref.depth, ref.knob == CPU_BURST, ref.key
