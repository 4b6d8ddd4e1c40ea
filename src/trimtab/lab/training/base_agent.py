"""What the agents' learners have in common: how episodes are lived through, and what is shipped."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trimtab.lab.environments import Course
from trimtab.lab.neural.actions import CHOICES
from trimtab.lab.neural.network import Network
from trimtab.lab.training import jax_network
from trimtab.lab.training.base import Learner
from trimtab.lab.training.rollouts import Rollout, Shard, live
from trimtab.lab.training.workers import Workers, here
from trimtab.sizing.state.serialization import Array
from trimtab.usage.trace import Floats

MEASURED = ("cpu slack", "memory slack", "time under", "unserved", "throttled", "ooms", "changes")


@dataclass(frozen=True)
class Stage:
    """Where an agent learns."""

    course: Course = field(default_factory=lambda: Course(hours=72))
    containers: int = 256
    """Of a shard."""
    warm_ups: tuple[int, ...] = (6, 24, 72, 96)
    """The hours that each shard watches first: an agent meets containers that are young and some that are not."""


class AgentLearner(Learner):
    """Learns by living through episodes."""

    objective = "reward"
    lower_is_better = False

    def __init__(self, stage: Stage, *, seed: int, workers: Workers[Any, Any] = here) -> None:
        super().__init__(seed)
        self._stage, self._workers = stage, workers

    def live(self, agent: Network | None, spread: Floats) -> Rollout:
        """The episodes of this update."""
        shards = [
            Shard(
                agent=agent,
                spread=spread,
                containers=self._stage.containers,
                seed=(self.seed, self.done, number),
                course=replace(self._stage.course, warm_up=warm_up),
            )
            for number, warm_up in enumerate(self._stage.warm_ups)
        ]
        return Rollout.joined(self._workers(live, shards))

    def figures(self, rollout: Rollout) -> dict[str, float]:
        costs = dict(zip(MEASURED, map(float, rollout.costs), strict=True))
        return {self.objective: float(rollout.rewards[rollout.measured].mean()), **costs}

    def weights(self) -> dict[str, Array]:
        shipped = jax_network.arrays(self.tree["agent"], "agent.")
        for name in ("last", "last_bias", "past"):
            shipped[f"agent.{name}"] = shipped[f"agent.{name}"][..., :CHOICES]
        return shipped


def network(parameters: jax_network.Parameters) -> Network:
    """For workers, who need no JAX."""
    return Network(*(np.asarray(parameters[name], np.float64) for name in Network._fields))
