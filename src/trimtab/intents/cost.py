"""Prices: what a workload costs, in cores for an hour, so that cores, memory and options can be weighed up."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trimtab.intents.effects.inputs import CACHE, POWER, option
from trimtab.intents.state import State

_GIBIBYTE = 2.0**30
OPTIONS = {
    "cache:guaranteed": 0.10,
    "cache:burstable": 0.05,
    "power:performance": 0.10,
    "power:balance-performance": 0.05,
    "power:balance-power": -0.03,
    "power:power": -0.05,
}


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    gibibyte: float = 0.125
    """What a GiB of memory costs, in cores: clouds sell about eight with a core."""
    options: Mapping[str, float] = msgspec.field(default_factory=OPTIONS.copy)
    """What an option costs a pod, in cores: cache that others lack, power that is drawn."""

    def of(self, state: State) -> float:
        """What is reserved for all pods together."""
        cpu, memory = state.requested()
        each = cpu + memory / _GIBIBYTE * self.gibibyte
        if state.cache_class:
            each += self.options.get(option(CACHE, state.cache_class), 0.0)
        if state.power_profile:
            each += self.options.get(option(POWER, state.power_profile), 0.0)
        return each * state.replicas
