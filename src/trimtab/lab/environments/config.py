"""The configuration that all environments share: demand, rules, reward weights, and the length of an episode."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded

from trimtab.errors import TrimtabError
from trimtab.lab.environments.container_sim import ContainerSim, RequestRules
from trimtab.lab.environments.demand import DemandSource, GeneratedDemand
from trimtab.lab.environments.reward import Weights, compute_costs, find_measured
from trimtab.usage.trace import Floats

EPISODE_OVER = "the episode is over: call reset() before the next step()"
NO_EPISODE = "no episode has begun: call reset() first"


@dataclass(frozen=True)
class EnvironmentConfig:
    """The settings of an environment; an action is good for an hour."""

    demand: DemandSource = field(default_factory=GeneratedDemand)
    rules: RequestRules = field(default_factory=RequestRules)
    weights: Weights = field(default_factory=Weights)
    hours: int = 168
    """Steps of an episode."""
    warm_up: int = 24
    """Hours that are watched before its first."""

    def __post_init__(self) -> None:
        if self.hours < 1 or self.warm_up < 1:
            raise TrimtabError("hours and warm_up: must each be at least 1")

    def start_episode(self, rng: np.random.Generator, *, containers: int) -> Episode:
        """Start a new episode, up to its first step."""
        demand = self.demand.sample(rng, containers=containers, hours=self.warm_up + self.hours)
        fleet = ContainerSim(demand, self.rules)
        fleet.warm_up(self.warm_up)
        return Episode(fleet, self.weights, demand.names)


class Episode:
    """The containers of one episode."""

    def __init__(self, sim: ContainerSim, weights: Weights, names: tuple[str, ...]) -> None:
        self.sim, self.names = sim, names
        self._weights = np.array(weights)

    def step(self, cpu: Floats, memory: Floats) -> tuple[Floats, dict[str, Any]]:
        """Run an hour with the given requests: return the reward of each container, its costs by name, and whether it
        was measured.

        An hour without samples has a reward of 0 and costs of NaN; `measured` is False for it.
        """
        if self.sim.is_over:
            raise ResetNeeded(EPISODE_OVER)
        changes = self.sim.apply_requests(cpu, memory)
        self.sim.run_hour()
        paid = compute_costs(self.sim.sums, changes)
        costs = {name: paid[:, place] for place, name in enumerate(Weights._fields)}
        return -(np.nan_to_num(paid) @ self._weights), costs | {"measured": find_measured(self.sim.sums)}
