"""Trains the networks of the strategy `forecaster`: quantiles of the next hour, by the pinball loss.

Two networks, of CPU and of memory, learn side by side from the same recordings. A network answers with the logarithm
of the lowest quantile and with the distances from each to the next, which cannot be negative: so quantiles are always
in order. A tenth of the containers of each recording is kept apart; by their loss the training is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from trimtab.errors import TrimtabError
from trimtab.lab.neural.features import FEATURES
from trimtab.lab.ray_engine import Workers, run_locally
from trimtab.lab.training import jax_network
from trimtab.lab.training.base import Learner
from trimtab.lab.training.dataset import Examples, build_examples
from trimtab.lab.training.provenance import describe_settings
from trimtab.sizing.state import Array
from trimtab.usage.trace import Trace

TAUS = np.array([0.05, 0.2, 0.4, 0.6, 0.75, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9997], np.float32)
RESOURCES = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class ForecasterConfig:
    """The training settings of the forecaster."""

    hidden: int = 64
    batch: int = 2048
    steps: int = 100
    """Steps of an update."""
    rate: float = 2e-3
    """The learning rate at the beginning; it decreases to a fiftieth along a cosine."""
    updates: int = 100
    """Updates after which the learning rate stays at its lowest value."""
    examples: int = 60_000
    """At most so many of each recording and resource."""
    decay: float = 1e-4
    """The weight decay, which keeps small weights small."""


def predict_quantiles(parameters: jax_network.Parameters, shown: Any) -> Any:
    """Return the quantiles of each row, in order."""
    answers = jax_network.apply_network(parameters, shown)
    steps = jax.nn.softplus(answers[:, 1:])
    return answers[:, :1] + jnp.concatenate([jnp.zeros_like(steps[:, :1]), jnp.cumsum(steps, axis=1)], axis=1)


def pinball_loss(parameters: jax_network.Parameters, shown: Any, outcome: Any) -> Any:
    """Return the loss: 0 for a perfect forecast; each quantile counts by the width of the loss around it."""
    known = ~jnp.isnan(outcome)
    error = jnp.where(known, outcome, 0.0)[:, :, None] - predict_quantiles(parameters, shown)[:, None, :]
    paid = jnp.maximum(TAUS * error, (TAUS - 1.0) * error) / jnp.sqrt(TAUS * (1.0 - TAUS))
    return (paid.mean(axis=2) * known).sum() / jnp.maximum(known.sum(), 1)


class ForecasterLearner(Learner):
    """Trains the forecaster on recordings."""

    name: ClassVar[str] = "forecaster"
    objective: ClassVar[str] = "loss apart"
    lower_is_better: ClassVar[bool] = True

    def __init__(
        self,
        traces: Sequence[Trace],
        *,
        seed: int = 0,
        config: ForecasterConfig | None = None,
        workers: Workers[Any, Any] = run_locally,
    ) -> None:
        super().__init__(seed)
        self.config = config or ForecasterConfig()
        self._traces = [describe_settings(trace) for trace in traces]
        self._training_examples, self._validation_examples = _gather_examples(
            traces, seed, self.config.examples, workers
        )
        networks = {
            resource: jax_network.fit_scaling(
                jax_network.init_network(
                    self.make_rng(at), inputs=FEATURES, hidden=self.config.hidden, outputs=len(TAUS)
                ),
                self._training_examples[resource].features,
            )
            for at, resource in enumerate(RESOURCES)
            if len(self._training_examples[resource].features)
        }
        steps = self.config.updates * self.config.steps
        self._compiled = _compile_steps(self.config.rate, steps, self.config.decay)
        self.tree = {"networks": networks, "optimiser": self._compiled.init(networks)}

    @property
    def settings(self) -> Any:
        return super().settings | {"traces": self._traces}

    def learn(self) -> dict[str, float]:
        rng, losses = self.make_rng(), []
        for _ in range(self.config.steps):
            batch = {}
            for name in self.tree["networks"]:
                shown, outcome = self._training_examples[name]
                rows = rng.integers(len(shown), size=self.config.batch)
                batch[name] = (shown[rows], outcome[rows])
            self.tree, loss = self._compiled.step(self.tree, batch)
            losses.append(loss)
        figures = {"loss": float(np.mean(np.array(losses)))}
        apart = {
            name: float(LOSS_FUNCTION(network, *self._validation_examples[name]))
            for name, network in self.tree["networks"].items()
        }
        return {
            **figures,
            self.objective: sum(apart.values()),
            **{f"{name} apart": loss for name, loss in apart.items()},
        }

    def export_weights(self) -> dict[str, Array]:
        networks = self.tree["networks"]
        whole = {name: networks.get(name) or next(iter(networks.values())) for name in RESOURCES}
        arrays: dict[str, Array] = {}
        for name, network in whole.items():
            arrays |= jax_network.export_arrays(network, f"{name}.") | {f"{name}.taus": TAUS}
        return arrays


class _CompiledSteps(NamedTuple):
    """The compiled steps, shared by all learners with the same settings."""

    init: Any
    step: Any


@cache
def _compile_steps(rate: float, steps: int, decay: float) -> _CompiledSteps:
    slower = optax.cosine_decay_schedule(rate, steps, alpha=0.02)
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(slower, weight_decay=decay))

    def step(tree: Any, batch: Any) -> tuple[Any, Any]:
        def loss(networks: Any) -> Any:
            return sum(pinball_loss(networks[name], *batch[name]) for name in networks)

        worth, gradients = jax.value_and_grad(loss)(tree["networks"])
        moves, state = optimiser.update(
            jax_network.mask_fixed(gradients), tree["optimiser"], tree["networks"]
        )
        networks = optax.apply_updates(tree["networks"], jax_network.mask_fixed(moves))
        return {"networks": networks, "optimiser": state}, worth

    return _CompiledSteps(jax.jit(optimiser.init), jax.jit(step))


LOSS_FUNCTION = jax.jit(pinball_loss)


def _gather_examples(
    traces: Sequence[Trace], seed: int, most: int, workers: Workers[Any, Any]
) -> tuple[dict[str, Examples], dict[str, Examples]]:
    """Return the examples to learn from and those for validation, of each resource."""
    parts = [part for number, trace in enumerate(traces) for part in _split_trace(trace, seed + number, most)]
    made = workers(_build_part, parts)
    found = []
    for which in range(2):
        own_examples = [(Examples.empty(), Examples.empty()), *made[which::2]]
        found.append(
            {
                name: Examples.concatenate([pair[at] for pair in own_examples])
                for at, name in enumerate(RESOURCES)
            }
        )
    if not any(len(part.features) for part in found[0].values()):
        raise TrimtabError("train: the recordings are too short: training needs at least three hours")
    return found[0], {name: part if len(part.features) else found[0][name] for name, part in found[1].items()}


def _split_trace(trace: Trace, seed: int, most: int) -> list[tuple[Trace, int, int]]:
    """Return nine tenths of the containers for training, and one tenth for validation."""
    order = np.random.default_rng(seed).permutation(trace.container_count)
    tenth = max(1, trace.container_count // 10) if trace.container_count > 1 else 0
    return [
        (trace.select_columns(np.sort(order[tenth:])), seed, most),
        (trace.select_columns(np.sort(order[:tenth])), seed, most // 10),
    ]


def _build_part(part: tuple[Trace, int, int]) -> tuple[Examples, Examples]:
    trace, seed, most = part
    return build_examples(trace, seed=seed, most=most)
