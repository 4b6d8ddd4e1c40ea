"""The node agent: measure each pod every second, and enforce the quality of service of latency-sensitive pods."""

from typing import TYPE_CHECKING

from trimtab.lazy import lazy_exports

if TYPE_CHECKING:
    from trimtab.node.agent import NodeAgent
    from trimtab.node.arbiter.requests import BoundType, KnobRef, KnobRequest, Precedence
    from trimtab.node.config import AgentSettings
    from trimtab.node.strategies.strategy import Eviction, NodeStrategy, StrategyInput, StrategyOutput

__all__ = [
    "AgentSettings",
    "BoundType",
    "Eviction",
    "KnobRef",
    "KnobRequest",
    "NodeAgent",
    "NodeStrategy",
    "Precedence",
    "StrategyInput",
    "StrategyOutput",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "AgentSettings": "config",
        "BoundType": "arbiter.requests",
        "Eviction": "strategies.strategy",
        "KnobRef": "arbiter.requests",
        "KnobRequest": "arbiter.requests",
        "NodeAgent": "agent",
        "NodeStrategy": "strategies.strategy",
        "Precedence": "arbiter.requests",
        "StrategyInput": "strategies.strategy",
        "StrategyOutput": "strategies.strategy",
    },
)
