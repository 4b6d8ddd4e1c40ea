"""Node QoS strategies, one module each; they request knobs and evictions and write nothing.

They are entry points of the group `trimtab.node_strategies` and run once a second.
"""

from trimtab.node.strategies.strategy import (
    NO_OUTPUT,
    STRATEGIES,
    Eviction,
    NodeStrategy,
    StrategyInput,
    StrategyOutput,
)

__all__ = ["NO_OUTPUT", "STRATEGIES", "Eviction", "NodeStrategy", "StrategyInput", "StrategyOutput"]
