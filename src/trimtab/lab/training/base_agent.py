"""The parts that the agents' learners share: running episodes and exporting weights."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trimtab.lab.environments import EnvironmentConfig
from trimtab.lab.neural.actions import ACTION_SIZE
from trimtab.lab.neural.network import Network
from trimtab.lab.ray_engine import Workers, run_locally
from trimtab.lab.training import jax_network
from trimtab.lab.training.base import Learner
from trimtab.lab.training.rollouts import Rollout, RolloutShard, run_shard
from trimtab.sizing.state import Array
from trimtab.usage.trace import Floats

COST_NAMES = ("cpu slack", "memory slack", "time under", "unserved", "throttled", "ooms", "changes")


@dataclass(frozen=True)
class RolloutConfig:
    """The environments in which an agent learns."""

    course: EnvironmentConfig = field(default_factory=lambda: EnvironmentConfig(hours=72))
    containers: int = 256
    """The number of environments of a shard."""
    warm_ups: tuple[int, ...] = (6, 24, 72, 96)
    """The hours that each shard watches first: an agent meets containers that are young and some that are not."""


class AgentLearner(Learner):
    """Trains an agent on the rewards of episodes."""

    objective = "reward"
    lower_is_better = False

    def __init__(
        self, rollout_config: RolloutConfig, *, seed: int, workers: Workers[Any, Any] = run_locally
    ) -> None:
        super().__init__(seed)
        self._rollout_config, self._workers = rollout_config, workers

    def run_episodes(self, agent: Network | None, spread: Floats) -> Rollout:
        """Run the episodes of this update."""
        shards = [
            RolloutShard(
                agent=agent,
                spread=spread,
                containers=self._rollout_config.containers,
                seed=(self.seed, self.updates_done, number),
                config=replace(self._rollout_config.course, warm_up=warm_up),
            )
            for number, warm_up in enumerate(self._rollout_config.warm_ups)
        ]
        return Rollout.concatenate(self._workers(run_shard, shards))

    def compute_figures(self, rollout: Rollout) -> dict[str, float]:
        costs = dict(zip(COST_NAMES, map(float, rollout.costs), strict=True))
        return {self.objective: float(rollout.rewards[rollout.measured].mean()), **costs}

    def export_weights(self) -> dict[str, Array]:
        shipped = jax_network.export_arrays(self.tree["agent"], "agent.")
        for name in ("last", "last_bias", "past"):
            shipped[f"agent.{name}"] = shipped[f"agent.{name}"][..., :ACTION_SIZE]
        return shipped


def to_numpy_network(parameters: jax_network.Parameters) -> Network:
    """Convert a network to numpy, because workers have no JAX."""
    return Network(*(np.asarray(parameters[name], np.float64) for name in Network._fields))
