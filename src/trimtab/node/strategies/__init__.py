"""What keeps quality of service on a node: a strategy a file, each asking for knobs and evictions and doing nothing.

Ours and others' come in as entry points `trimtab.node_strategies`; a round asks each of them once a second.
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
