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
    spots = sorted((ref for ref in wanted if wanted[ref] != now[ref]), key=_depth_key)
    # A value that neither grows nor shrinks, such as CPUs 0-3 that become 2-5, first becomes the union: a child
    # on either side stays within its parent at every moment, and cgroup v1 rejects a write that breaks this.
    growing = {ref: join(now[ref], wanted[ref]) for ref in spots}
    return [(ref, growing[ref]) for ref in spots if growing[ref] != now[ref]] + [
        (ref, wanted[ref]) for ref in reversed(spots) if growing[ref] != wanted[ref]
    ]


def _depth_key(ref: KnobRef) -> tuple[int, bool, tuple[str, str]]:
    return ref.depth, ref.knob == CPU_BURST, ref.key
