"""What all environments are made of: where demand comes from, the rules, the weights of the reward, and an episode's length."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded

from trimtab.errors import TrimtabError
from trimtab.lab.environments.container_sim import Fleet, Rules
from trimtab.lab.environments.demand import Demand, Generated
from trimtab.lab.environments.reward import Weights, costs, measured
from trimtab.usage.trace import Floats

OVER = "the episode is over: call reset() before the next step()"
NO_EPISODE = "no episode has begun: call reset() first"


@dataclass(frozen=True)
class Course:
    """The settings of an environment; an action is good for an hour."""

    demand: Demand = field(default_factory=Generated)
    rules: Rules = field(default_factory=Rules)
    weights: Weights = field(default_factory=Weights)
    hours: int = 168
    """Steps of an episode."""
    warm_up: int = 24
    """Hours that are watched before its first."""

    def __post_init__(self) -> None:
        if self.hours < 1 or self.warm_up < 1:
            raise TrimtabError("hours and warm_up: must each be at least 1")

    def begin(self, chance: np.random.Generator, *, containers: int) -> Episode:
        """A new episode, up to its first step."""
        demand = self.demand.draw(chance, containers=containers, hours=self.warm_up + self.hours)
        fleet = Fleet(demand, self.rules)
        fleet.warm_up(self.warm_up)
        return Episode(fleet, self.weights, demand.names)


class Episode:
    """The containers of one episode."""

    def __init__(self, fleet: Fleet, weights: Weights, names: tuple[str, ...]) -> None:
        self.fleet, self.names = fleet, names
        self._weights = np.array(weights)

    def step(self, cpu: Floats, memory: Floats) -> tuple[Floats, dict[str, Any]]:
        """Live an hour with such requests: the reward of each container, its costs by name, and whether it was measured.

        An hour without samples has no reward, which is told as 0, and no costs, which are NaN. `measured` is False then.
        """
        if self.fleet.over:
            raise ResetNeeded(OVER)
        changes = self.fleet.apply(cpu, memory)
        self.fleet.pass_hour()
        paid = costs(self.fleet.sums, changes)
        told = {name: paid[:, place] for place, name in enumerate(Weights._fields)}
        return -(np.nan_to_num(paid) @ self._weights), told | {"measured": measured(self.fleet.sums)}
