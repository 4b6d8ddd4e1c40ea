"""Proximal policy optimisation (Schulman et al., 2017), in one file.

An update lives through episodes with the agent as it is, judges each choice by how much better things went than a
second network expected (generalised advantages), and makes good choices likelier and bad ones rarer, but not by much
at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from trimtab.lab.neural.actions import ACTION_SIZE, OBSERVATION_SIZE
from trimtab.lab.ray_engine import Workers, run_locally
from trimtab.lab.training import jax_network
from trimtab.lab.training.base_agent import AgentLearner, RolloutConfig, to_numpy_network
from trimtab.usage.trace import Floats


@dataclass(frozen=True)
class PpoConfig:
    """The training settings of PPO."""

    stage: RolloutConfig = field(default_factory=RolloutConfig)
    hidden: int = 64
    rate: float = 1e-3
    updates: int = 200
    """Updates in which the learning rate decreases to a tenth."""
    passes: int = 4
    batch: int = 8192
    discount: float = 0.9
    trace: float = 0.9
    """The lambda of generalised advantage estimation."""
    clip: float = 0.2
    curiosity: float = 2e-3
    """The bonus for entropy."""
    worst: float = -25.0
    """Rewards under this count as this: one catastrophe must not drown everything else."""


class PpoLearner(AgentLearner):
    """Trains an agent on its own latest episodes."""

    name: ClassVar[str] = "ppo"

    def __init__(
        self, *, seed: int = 0, config: PpoConfig | None = None, workers: Workers[Any, Any] = run_locally
    ) -> None:
        self.config = config or PpoConfig()
        super().__init__(self.config.stage, seed=seed, workers=workers)
        each = self.config.passes * max(1, self._samples // self.config.batch)
        size = {"inputs": OBSERVATION_SIZE, "hidden": self.config.hidden}
        learned = {
            "agent": jax_network.init_network(self.make_rng(0), **size, outputs=ACTION_SIZE),
            "judge": jax_network.init_network(self.make_rng(1), **size, outputs=1),
            "spread": np.full(ACTION_SIZE, -0.3, np.float32),
        }
        self._compiled = _compile_steps(
            self.config.rate, self.config.updates * each, self.config.clip, self.config.curiosity
        )
        self.tree = {**learned, "optimiser": self._compiled.init(learned)}

    @property
    def _samples(self) -> int:
        stage: RolloutConfig = self.config.stage
        return stage.containers * len(stage.warm_ups) * stage.course.hours

    def learn(self) -> dict[str, float]:
        spread = np.exp(np.asarray(self.tree["spread"], np.float64))
        rollout = self.run_episodes(to_numpy_network(self.tree["agent"]), spread)
        if self.updates_done == 0:
            seen = rollout.seen.reshape(-1, OBSERVATION_SIZE)
            for name in ("agent", "judge"):
                self.tree[name] = jax_network.fit_scaling(self.tree[name], seen)
        expected = np.asarray(PREDICT_VALUE(self.tree["judge"], rollout.seen), np.float64)
        rewards = np.maximum(rollout.rewards, self.config.worst)
        known = rollout.measured
        better = _compute_advantages(rewards, known, expected, self.config)
        mean, width = better[known].mean(), better[known].std() + 1e-8
        flat = (
            rollout.seen[:-1][known],
            rollout.chosen[known],
            ((better[known] - mean) / width).astype(np.float32),
            (better + expected[:-1])[known].astype(np.float32),
        )
        before = {"agent": self.tree["agent"], "spread": self.tree["spread"]}
        rng, batch = self.make_rng(1), min(self.config.batch, len(flat[0]))
        for _ in range(self.config.passes):
            order = rng.permutation(len(flat[0]))
            for start in range(0, len(order) - batch + 1, batch):
                rows = order[start : start + batch]
                self.tree = self._compiled.step(self.tree, before, *(part[rows] for part in flat))
        return {**self.compute_figures(rollout), "spread": float(spread.mean())}


def _compute_advantages(
    rewards: Floats, measured: npt.NDArray[np.bool_], expected: Floats, config: PpoConfig
) -> Floats:
    """Return the advantage of each step; an hour without samples has none."""
    better = np.zeros(rewards.shape)
    running = np.zeros(rewards.shape[1])
    for step in range(len(rewards) - 1, -1, -1):
        surprise = rewards[step] + config.discount * expected[step + 1] - expected[step]
        running = np.where(measured[step], surprise, 0.0) + config.discount * config.trace * running
        better[step] = running
    return better


def _log_probability(agent: Any, spread: Any, seen: Any, chosen: Any) -> Any:
    """Return the logarithm of the probability of a choice, up to a constant."""
    off = (chosen - jax_network.apply_network(agent, seen)) / jnp.exp(spread)
    return (-0.5 * off**2 - spread).sum(axis=-1)


PREDICT_VALUE = jax.jit(lambda judge, seen: jax_network.apply_network(judge, seen)[..., 0])


class _CompiledSteps(NamedTuple):
    """The compiled steps, shared by all learners with the same settings."""

    init: Any
    step: Any


@cache
def _compile_steps(rate: float, steps: int, clip: float, curiosity: float) -> _CompiledSteps:
    slower = optax.linear_schedule(rate, rate / 10, steps)
    optimiser = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(slower))

    def step(tree: Any, before: Any, seen: Any, chosen: Any, better: Any, returns: Any) -> Any:
        likely_before = _log_probability(before["agent"], before["spread"], seen, chosen)

        def loss(learned: Any) -> Any:
            ratio = jnp.exp(
                _log_probability(learned["agent"], learned["spread"], seen, chosen) - likely_before
            )
            gain = jnp.minimum(ratio * better, jnp.clip(ratio, 1 - clip, 1 + clip) * better).mean()
            miss = optax.huber_loss(
                jax_network.apply_network(learned["judge"], seen)[..., 0], returns, delta=5.0
            ).mean()
            return -gain + 0.1 * miss - curiosity * learned["spread"].sum()

        learned = {name: tree[name] for name in ("agent", "judge", "spread")}
        gradients = jax_network.mask_fixed(jax.grad(loss)(learned))
        moves, state = optimiser.update(gradients, tree["optimiser"], learned)
        return {**optax.apply_updates(learned, moves), "optimiser": state}

    return _CompiledSteps(jax.jit(optimiser.init), jax.jit(step))
