"""Run episodes of an agent in `trimtab/SizingVector-v0`, and record observations, actions and rewards.

The containers of an update are divided into shards, each an environment with a seed of its own, so that workers
elsewhere can live through them. The result does not depend on where that is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.lab.environments import EnvironmentConfig
from trimtab.lab.environments.vector import SizingVector
from trimtab.lab.neural.actions import ACTION_SIZE, OBSERVATION_SIZE
from trimtab.lab.neural.network import Network, predict
from trimtab.usage.trace import Floats

Singles = npt.NDArray[np.float32]

MIN_LOG_SPREAD, MAX_LOG_SPREAD = -4.0, 1.0
"""The logarithm of how far the choices of an agent stray that says so itself, in episodes as in training."""


class Rollout(NamedTuple):
    """Steps by containers; what was seen has one step more, for the end."""

    seen: Singles
    chosen: Singles
    """Before they are squashed into places."""
    rewards: Singles
    measured: npt.NDArray[np.bool_]
    """True if the hour had a sample; otherwise its reward of 0 means nothing."""
    costs: Floats
    """The mean of each cost over the hours in which it was measured, in the order of `Weights`; NaN without any."""

    @classmethod
    def concatenate(cls, parts: list[Rollout]) -> Rollout:
        seen, chosen, rewards, measured = (
            np.concatenate([part[at] for part in parts], axis=1) for at in range(4)
        )
        return cls(seen, chosen, rewards, measured, mean_known(np.stack([part.costs for part in parts])))


def mean_known(rows: Floats) -> Floats:
    """Return the mean of each column over the rows that have a number."""
    known = ~np.isnan(rows)
    count = known.sum(axis=0)
    found: Floats = np.where(count > 0, np.where(known, rows, 0.0).sum(axis=0) / np.maximum(count, 1), np.nan)
    return found


@dataclass(frozen=True)
class RolloutShard:
    """A part of an update's episodes, with all that a worker needs to run it."""

    agent: Network | None
    """Without one, choices are drawn evenly."""
    spread: Floats
    """The standard deviation of the exploration noise."""
    containers: int
    seed: tuple[int, ...]
    config: EnvironmentConfig = field(default_factory=EnvironmentConfig)


def run_shard(shard: RolloutShard) -> Rollout:
    """Run the episodes of a shard."""
    rng = np.random.default_rng(shard.seed)
    settings = vars(shard.config)
    env = SizingVector(shard.containers, **settings)
    view, _ = env.reset(seed=int(rng.integers(2**31)))
    hours = shard.config.hours
    seen = np.empty((hours + 1, shard.containers, OBSERVATION_SIZE), np.float32)
    chosen = np.empty((hours, shard.containers, ACTION_SIZE), np.float32)
    rewards = np.empty((hours, shard.containers), np.float32)
    measured = np.empty((hours, shard.containers), bool)
    costs: list[Floats] = []
    for hour in range(hours):
        seen[hour] = view
        chosen[hour] = choose_actions(shard, view, rng)
        view, reward, _, _, info = env.step((1.0 / (1.0 + np.exp(-chosen[hour]))).astype(np.float32))
        rewards[hour], measured[hour] = reward, info["measured"]
        costs.append(np.stack([info[name] for name in shard.config.weights._fields], axis=1))
    seen[hours] = view
    return Rollout(seen, chosen, rewards, measured, mean_known(np.concatenate(costs)))


def choose_actions(shard: RolloutShard, view: Singles, rng: np.random.Generator) -> Floats:
    """Return the agent's action for an observation."""
    stray = rng.standard_normal((len(view), ACTION_SIZE))
    if shard.agent is None:
        return 1.5 * stray
    answers = predict(shard.agent, view.astype(np.float64))
    own = np.exp(np.clip(answers[:, ACTION_SIZE:], MIN_LOG_SPREAD, MAX_LOG_SPREAD))
    spread = own if answers.shape[1] > ACTION_SIZE else shard.spread
    return answers[:, :ACTION_SIZE] + spread * stray
