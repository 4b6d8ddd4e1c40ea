"""Soft actor-critic (Haarnoja et al., 2018), in one file: the agent that learns off policy, from all it remembers.

Two networks say what a choice in a situation is worth in the long run, and the lower one is believed. The agent makes
the choice that they think best, and stays as undecided as it can afford: the price of that adjusts itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from trimtab.lab.neural.actions import ACTION_SIZE, OBSERVATION_SIZE
from trimtab.lab.ray_engine import Workers, run_locally
from trimtab.lab.training import jax_network
from trimtab.lab.training.base_agent import AgentLearner, RolloutConfig, to_numpy_network
from trimtab.lab.training.rollouts import MAX_LOG_SPREAD, MIN_LOG_SPREAD, Rollout
from trimtab.sizing.state import Array

CRITICS = ("one", "two")


@dataclass(frozen=True)
class SacConfig:
    """The training settings of SAC."""

    stage: RolloutConfig = field(default_factory=RolloutConfig)
    hidden: int = 64
    rate: float = 1e-3
    remembered: int = 3
    """Updates whose episodes are remembered."""
    first: int = 1
    """Updates in which choices are drawn by chance, to have something to learn from."""
    steps: int = 150
    """Steps of an update."""
    batch: int = 2048
    discount: float = 0.9
    follow: float = 0.02
    """The rate at which the target networks follow the trained ones."""
    undecided: float = -2.0
    """The target entropy."""
    worst: float = -25.0
    """Rewards under this count as this."""


class SacLearner(AgentLearner):
    """Trains an agent on all transitions that it remembers."""

    name: ClassVar[str] = "sac"

    def __init__(
        self, *, seed: int = 0, config: SacConfig | None = None, workers: Workers[Any, Any] = run_locally
    ) -> None:
        self.config = config or SacConfig()
        super().__init__(self.config.stage, seed=seed, workers=workers)
        hidden = self.config.hidden
        critics = {
            name: jax_network.init_network(
                self.make_rng(1 + at), inputs=OBSERVATION_SIZE + ACTION_SIZE, hidden=hidden, outputs=1
            )
            for at, name in enumerate(CRITICS)
        }
        agent = jax_network.init_network(
            self.make_rng(0), inputs=OBSERVATION_SIZE, hidden=hidden, outputs=2 * ACTION_SIZE
        )
        learned = {"agent": agent, "critics": critics, "price": np.array(-2.0, np.float32)}
        p = self.config
        self._compiled = _compile_steps(p.rate, p.discount, p.follow, p.undecided)
        self.tree = {**learned, "believed": critics, "optimiser": self._compiled.init(learned)}
        self._replay_buffer: list[Rollout] = []

    def learn(self) -> dict[str, float]:
        agent = to_numpy_network(self.tree["agent"]) if self.updates_done >= self.config.first else None
        rollout = self.run_episodes(agent, np.ones(ACTION_SIZE))
        self._store_rollout(rollout)
        if self.updates_done == 0:
            self._fit_scaling(rollout)
        seen, chosen, rewards, then = self._collect_transitions()
        rng = self.make_rng(1)
        for _ in range(self.config.steps):
            rows = rng.integers(len(seen), size=self.config.batch)
            batch = (part[rows].astype(np.float32) for part in (seen, chosen, rewards, then))
            strays = rng.standard_normal((2, self.config.batch, ACTION_SIZE)).astype(np.float32)
            self.tree = self._compiled.step(self.tree, strays, *batch)
        return {**self.compute_figures(rollout), "price": float(np.exp(self.tree["price"]))}

    def arrays(self) -> dict[str, Array]:
        kept = {
            f"memory.{at}.{name}": array
            for at, one in enumerate(self._replay_buffer)
            for name, array in one._asdict().items()
        }
        return super().arrays() | kept

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        super().load_arrays(arrays)
        count = sum(name.endswith(".seen") for name in arrays)
        self._replay_buffer = [
            Rollout(*(arrays[f"memory.{at}.{name}"] for name in Rollout._fields)) for at in range(count)
        ]

    def _store_rollout(self, rollout: Rollout) -> None:
        halved = rollout._replace(seen=rollout.seen.astype(np.float16))
        self._replay_buffer = [*self._replay_buffer, halved][-self.config.remembered :]

    def _collect_transitions(self) -> tuple[Array, Array, Array, Array]:
        """Return all remembered transitions whose reward is known."""
        return (
            np.concatenate([one.seen[:-1][one.measured] for one in self._replay_buffer]),
            np.concatenate([one.chosen[one.measured] for one in self._replay_buffer]),
            np.maximum(
                np.concatenate([one.rewards[one.measured] for one in self._replay_buffer]), self.config.worst
            ),
            np.concatenate([one.seen[1:][one.measured] for one in self._replay_buffer]),
        )

    def _fit_scaling(self, rollout: Rollout) -> None:
        seen, chosen = (
            rollout.seen[:-1].reshape(-1, OBSERVATION_SIZE),
            rollout.chosen.reshape(-1, ACTION_SIZE),
        )
        both = np.concatenate([seen, _squash(chosen)], axis=1)
        self.tree["agent"] = jax_network.fit_scaling(self.tree["agent"], seen)
        for kind in ("critics", "believed"):
            self.tree[kind] = {name: jax_network.fit_scaling(self.tree[kind][name], both) for name in CRITICS}


def _squash(chosen: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-chosen))


def _q_value(critic: Any, seen: Any, chosen: Any) -> Any:
    return jax_network.apply_network(critic, jnp.concatenate([seen, jax.nn.sigmoid(chosen)], axis=-1))[..., 0]


def sample_action(agent: Any, seen: Any, stray: Any) -> tuple[Any, Any]:
    """Return a random action with this noise, and the logarithm of its probability."""
    answers = jax_network.apply_network(agent, seen)
    spread = jnp.clip(answers[..., ACTION_SIZE:], MIN_LOG_SPREAD, MAX_LOG_SPREAD)
    chosen = answers[..., :ACTION_SIZE] + jnp.exp(spread) * stray
    squashed = jax.nn.softplus(chosen) + jax.nn.softplus(-chosen)
    likely = (-0.5 * stray**2 - spread - 0.5 * jnp.log(2 * jnp.pi) + squashed).sum(axis=-1)
    return chosen, likely


class _CompiledSteps(NamedTuple):
    """The compiled steps, shared by all learners with the same settings."""

    init: Any
    step: Any


@cache
def _compile_steps(rate: float, discount: float, follow: float, undecided: float) -> _CompiledSteps:
    optimiser = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(rate))

    def step(tree: Any, strays: Any, seen: Any, chosen: Any, rewards: Any, then: Any) -> Any:
        price = jnp.exp(tree["price"])
        next_chosen, next_likely = sample_action(tree["agent"], then, strays[0])
        later = jnp.minimum(*(_q_value(tree["believed"][name], then, next_chosen) for name in CRITICS))
        aim = rewards + discount * (later - price * next_likely)

        def loss(learned: Any) -> Any:
            judged = (_q_value(learned["critics"][name], seen, chosen) for name in CRITICS)
            miss = sum(optax.huber_loss(worth, aim, delta=5.0).mean() for worth in judged)
            own_action, likely = sample_action(learned["agent"], seen, strays[1])
            fixed = jax.lax.stop_gradient(learned["critics"])
            worth = jnp.minimum(*(_q_value(fixed[name], seen, own_action) for name in CRITICS))
            surplus_entropy = jax.lax.stop_gradient(likely + undecided).mean()
            return miss + (price * likely - worth).mean() - learned["price"] * surplus_entropy

        learned = {name: tree[name] for name in ("agent", "critics", "price")}
        gradients = jax_network.mask_fixed(jax.grad(loss)(learned))
        moves, state = optimiser.update(gradients, tree["optimiser"], learned)
        learned = optax.apply_updates(learned, moves)
        believed = jax.tree_util.tree_map(
            lambda old, new: old + follow * (new - old), tree["believed"], learned["critics"]
        )
        return {**learned, "believed": believed, "optimiser": state}

    return _CompiledSteps(jax.jit(optimiser.init), jax.jit(step))
