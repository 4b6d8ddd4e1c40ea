"""Episodes that an agent lives through in `trimtab/SizingVector-v0`: what it saw, chose and got.

The containers of an update are divided into shards, each an environment with a seed of its own, so that workers
elsewhere can live through them. The result does not depend on where that is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.lab.environments import Course
from trimtab.lab.environments.vector import SizingVector
from trimtab.sizing.learned_choice import CHOICES, SEEN
from trimtab.sizing.learned_network import Network, outputs
from trimtab.usage.trace import Floats

Singles = npt.NDArray[np.float32]

NARROWEST, WIDEST = -4.0, 1.0
"""The logarithm of how far the choices of an agent stray that says so itself, in episodes as in training."""


class Rollout(NamedTuple):
    """Steps by containers; what was seen has one step more, for the end."""

    seen: Singles
    chosen: Singles
    """Before they are squashed into places."""
    rewards: Singles
    costs: Floats
    """The mean of each cost, in the order of `Weights`."""

    @classmethod
    def joined(cls, parts: list[Rollout]) -> Rollout:
        seen, chosen, rewards = (np.concatenate([part[at] for part in parts], axis=1) for at in range(3))
        return cls(seen, chosen, rewards, np.mean([part.costs for part in parts], axis=0))


@dataclass(frozen=True)
class Shard:
    """A part of an update's episodes, with all that a worker needs to live through it."""

    agent: Network | None
    """Without one, choices are drawn evenly."""
    spread: Floats
    """How far choices stray from what the agent thinks best."""
    containers: int
    seed: tuple[int, ...]
    course: Course = field(default_factory=Course)


def live(shard: Shard) -> Rollout:
    """The shard's episodes."""
    chance = np.random.default_rng(shard.seed)
    course = vars(shard.course)
    env = SizingVector(shard.containers, **course)
    view, _ = env.reset(seed=int(chance.integers(2**31)))
    hours = shard.course.hours
    seen = np.empty((hours + 1, shard.containers, SEEN), np.float32)
    chosen = np.empty((hours, shard.containers, CHOICES), np.float32)
    rewards = np.empty((hours, shard.containers), np.float32)
    costs: list[Floats] = []
    for hour in range(hours):
        seen[hour] = view
        chosen[hour] = choose(shard, view, chance)
        view, reward, _, _, told = env.step((1.0 / (1.0 + np.exp(-chosen[hour]))).astype(np.float32))
        rewards[hour] = reward
        costs.append(np.array([told[name].mean() for name in shard.course.weights._fields]))
    seen[hours] = view
    return Rollout(seen, chosen, rewards, np.mean(costs, axis=0))


def choose(shard: Shard, view: Singles, chance: np.random.Generator) -> Floats:
    """What the agent does where it sees this."""
    stray = chance.standard_normal((len(view), CHOICES))
    if shard.agent is None:
        return 1.5 * stray
    answers = outputs(shard.agent, view.astype(np.float64))
    own = np.exp(np.clip(answers[:, CHOICES:], NARROWEST, WIDEST))
    spread = own if answers.shape[1] > CHOICES else shard.spread
    return answers[:, :CHOICES] + spread * stray
