"""Compute the size of each container: pure strategies, and guards that bound and explain their targets.

All containers are sized at once, in arrays with one element per container:

    from trimtab.sizing import strategy

    sizer = strategy("vpa", containers=3)
    sizer.observe(0.0, cpu, memory)   # cores and bytes; NaN where there is no sample
    sizes = sizer.recommend(60.0)     # sizes.cpu.target, sizes.memory.upper, …; NaN: not enough data
"""

from trimtab.plugins import Settings
from trimtab.sizing.state import MAX_PLAUSIBLE_CPU, MAX_PLAUSIBLE_MEMORY, deduplicate_kills
from trimtab.sizing.strategy import STRATEGIES, Strategy, TargetRange, Targets, strategy

__all__ = [
    "MAX_PLAUSIBLE_CPU",
    "MAX_PLAUSIBLE_MEMORY",
    "STRATEGIES",
    "Settings",
    "Strategy",
    "TargetRange",
    "Targets",
    "deduplicate_kills",
    "strategy",
]
