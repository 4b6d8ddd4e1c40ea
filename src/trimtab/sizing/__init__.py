"""What size each container should have: pure strategies, and everything that bounds and explains their answers.

    from trimtab.sizing import strategy

    sizer = strategy("vpa", containers=3)
    sizer.observe(0.0, cpu, memory)        # arrays of 3: cores and bytes; NaN where there is no sample
    sizes = sizer.recommend(60.0)          # sizes.cpu.target, sizes.memory.upper, … arrays of 3; NaN: not enough data
"""

from trimtab.sizing.registry import available, strategy
from trimtab.sizing.strategy import Bounds, Settings, Sizes, Strategy

__all__ = ["Bounds", "Settings", "Sizes", "Strategy", "available", "strategy"]
