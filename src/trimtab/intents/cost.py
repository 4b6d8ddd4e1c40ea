"""Costs of a workload in core-hours, so that CPU, memory and options can be compared."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trimtab.intents.effects.inputs import CACHE, POWER, option_key
from trimtab.intents.state import TargetState

_GIBIBYTE = 2.0**30
OPTION_COSTS = {
    "cache:guaranteed": 0.10,
    "cache:burstable": 0.05,
    "power:performance": 0.10,
    "power:balance-performance": 0.05,
    "power:balance-power": -0.03,
    "power:power": -0.05,
}


class ResourceCosts(msgspec.Struct, frozen=True, kw_only=True):
    per_gibibyte: float = 0.125
    """The cost of a GiB of memory, in cores: clouds sell about eight GiB with a core."""
    per_option: Mapping[str, float] = msgspec.field(default_factory=OPTION_COSTS.copy)
    """The cost of an option per pod, in cores."""

    def cost(self, state: TargetState) -> float:
        """Return the cost of the requests and options of all pods together."""
        cpu, memory = state.requests_per_pod()
        each = cpu + memory / _GIBIBYTE * self.per_gibibyte
        if state.cache_class:
            each += self.per_option.get(option_key(CACHE, state.cache_class), 0.0)
        if state.power_profile:
            each += self.per_option.get(option_key(POWER, state.power_profile), 0.0)
        return each * state.replicas
