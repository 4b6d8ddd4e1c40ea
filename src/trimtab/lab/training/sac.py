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

from trimtab.lab.neural.actions import CHOICES, SEEN
from trimtab.lab.training import jax_network
from trimtab.lab.training.base_agent import AgentLearner, Stage, network
from trimtab.lab.training.rollouts import NARROWEST, WIDEST, Rollout
from trimtab.lab.training.workers import Workers, here
from trimtab.sizing.state.serialization import Array

CRITICS = ("one", "two")


@dataclass(frozen=True)
class SacPlan:
    """How it is trained."""

    stage: Stage = field(default_factory=Stage)
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
    """How fast the networks that are believed follow those that learn."""
    undecided: float = -2.0
    """How undecided the agent is meant to stay: its entropy."""
    worst: float = -25.0
    """Rewards under this count as this."""


class SacLearner(AgentLearner):
    """Learns from what it remembers."""

    name: ClassVar[str] = "sac"

    def __init__(
        self, *, seed: int = 0, plan: SacPlan | None = None, workers: Workers[Any, Any] = here
    ) -> None:
        self.plan = plan or SacPlan()
        super().__init__(self.plan.stage, seed=seed, workers=workers)
        hidden = self.plan.hidden
        critics = {
            name: jax_network.new(self.chance(1 + at), inputs=SEEN + CHOICES, hidden=hidden, outputs=1)
            for at, name in enumerate(CRITICS)
        }
        agent = jax_network.new(self.chance(0), inputs=SEEN, hidden=hidden, outputs=2 * CHOICES)
        learned = {"agent": agent, "critics": critics, "price": np.array(-2.0, np.float32)}
        p = self.plan
        self._machine = _machine(p.rate, p.discount, p.follow, p.undecided)
        self.tree = {**learned, "believed": critics, "optimiser": self._machine.begin(learned)}
        self._memory: list[Rollout] = []

    def learn(self) -> dict[str, float]:
        agent = network(self.tree["agent"]) if self.done >= self.plan.first else None
        rollout = self.live(agent, np.ones(CHOICES))
        self._remember(rollout)
        if self.done == 0:
            self._scale(rollout)
        seen, chosen, rewards, then = self._flat()
        chance = self.chance(1)
        for _ in range(self.plan.steps):
            rows = chance.integers(len(seen), size=self.plan.batch)
            batch = (part[rows].astype(np.float32) for part in (seen, chosen, rewards, then))
            strays = chance.standard_normal((2, self.plan.batch, CHOICES)).astype(np.float32)
            self.tree = self._machine.step(self.tree, strays, *batch)
        return {**self.figures(rollout), "price": float(np.exp(self.tree["price"]))}

    def arrays(self) -> dict[str, Array]:
        kept = {
            f"memory.{at}.{name}": array
            for at, one in enumerate(self._memory)
            for name, array in one._asdict().items()
        }
        return super().arrays() | kept

    def take_over(self, arrays: Mapping[str, Array]) -> None:
        super().take_over(arrays)
        count = sum(name.endswith(".seen") for name in arrays)
        self._memory = [
            Rollout(*(arrays[f"memory.{at}.{name}"] for name in Rollout._fields)) for at in range(count)
        ]

    def _remember(self, rollout: Rollout) -> None:
        halved = rollout._replace(seen=rollout.seen.astype(np.float16))
        self._memory = [*self._memory, halved][-self.plan.remembered :]

    def _flat(self) -> tuple[Array, Array, Array, Array]:
        """All transitions that are remembered and whose reward is known."""
        return (
            np.concatenate([one.seen[:-1][one.measured] for one in self._memory]),
            np.concatenate([one.chosen[one.measured] for one in self._memory]),
            np.maximum(np.concatenate([one.rewards[one.measured] for one in self._memory]), self.plan.worst),
            np.concatenate([one.seen[1:][one.measured] for one in self._memory]),
        )

    def _scale(self, rollout: Rollout) -> None:
        seen, chosen = rollout.seen[:-1].reshape(-1, SEEN), rollout.chosen.reshape(-1, CHOICES)
        both = np.concatenate([seen, _places(chosen)], axis=1)
        self.tree["agent"] = jax_network.scaled_to(self.tree["agent"], seen)
        for kind in ("critics", "believed"):
            self.tree[kind] = {name: jax_network.scaled_to(self.tree[kind][name], both) for name in CRITICS}


def _places(chosen: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-chosen))


def _worth(critic: Any, seen: Any, chosen: Any) -> Any:
    return jax_network.apply(critic, jnp.concatenate([seen, jax.nn.sigmoid(chosen)], axis=-1))[..., 0]


def drawn(agent: Any, seen: Any, stray: Any) -> tuple[Any, Any]:
    """The choice that strays so far, and the logarithm of how likely its places are."""
    answers = jax_network.apply(agent, seen)
    spread = jnp.clip(answers[..., CHOICES:], NARROWEST, WIDEST)
    chosen = answers[..., :CHOICES] + jnp.exp(spread) * stray
    squashed = jax.nn.softplus(chosen) + jax.nn.softplus(-chosen)
    likely = (-0.5 * stray**2 - spread - 0.5 * jnp.log(2 * jnp.pi) + squashed).sum(axis=-1)
    return chosen, likely


class Machine(NamedTuple):
    """The compiled steps, the same for all learners with the same settings."""

    begin: Any
    step: Any


@cache
def _machine(rate: float, discount: float, follow: float, undecided: float) -> Machine:
    optimiser = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(rate))

    def step(tree: Any, strays: Any, seen: Any, chosen: Any, rewards: Any, then: Any) -> Any:
        price = jnp.exp(tree["price"])
        next_chosen, next_likely = drawn(tree["agent"], then, strays[0])
        later = jnp.minimum(*(_worth(tree["believed"][name], then, next_chosen) for name in CRITICS))
        aim = rewards + discount * (later - price * next_likely)

        def loss(learned: Any) -> Any:
            judged = (_worth(learned["critics"][name], seen, chosen) for name in CRITICS)
            miss = sum(optax.huber_loss(worth, aim, delta=5.0).mean() for worth in judged)
            mine, likely = drawn(learned["agent"], seen, strays[1])
            fixed = jax.lax.stop_gradient(learned["critics"])
            worth = jnp.minimum(*(_worth(fixed[name], seen, mine) for name in CRITICS))
            lack = jax.lax.stop_gradient(likely + undecided).mean()
            return miss + (price * likely - worth).mean() - learned["price"] * lack

        learned = {name: tree[name] for name in ("agent", "critics", "price")}
        gradients = jax_network.frozen(jax.grad(loss)(learned))
        moves, state = optimiser.update(gradients, tree["optimiser"], learned)
        learned = optax.apply_updates(learned, moves)
        believed = jax.tree_util.tree_map(
            lambda old, new: old + follow * (new - old), tree["believed"], learned["critics"]
        )
        return {**learned, "believed": believed, "optimiser": state}

    return Machine(jax.jit(optimiser.init), jax.jit(step))
