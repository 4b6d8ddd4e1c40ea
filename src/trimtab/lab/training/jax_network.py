"""The same small network that `trimtab.lab.neural.network` computes, here for JAX, so that it can be trained."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trimtab.lab.neural.network import MAX_INPUT_DEVIATIONS, Network
from trimtab.sizing.state import Array

Parameters = dict[str, Any]
FIXED = ("middle", "width")
"""Set once from what inputs look like, and not trained."""


def init_network(
    rng: np.random.Generator, *, inputs: int, hidden: int, outputs: int, last_scale: float = 0.01
) -> Parameters:
    """Return an untrained network, whose outputs are near 0."""

    def draw_weights(rows: int, columns: int, scale: float) -> Array:
        numbers: Array = rng.standard_normal((rows, columns)) * scale * np.sqrt(2.0 / rows)
        return numbers.astype(np.float32)

    def zeros(*shape: int) -> Array:
        return np.zeros(shape, np.float32)

    return {
        "middle": zeros(inputs),
        "width": zeros(inputs) + np.float32(1.0),
        "first": draw_weights(inputs, hidden, 1.0),
        "first_bias": zeros(hidden),
        "second": draw_weights(hidden, hidden, 1.0),
        "second_bias": zeros(hidden),
        "last": draw_weights(hidden, outputs, last_scale),
        "last_bias": zeros(outputs),
        "past": zeros(inputs, outputs),
    }


def apply_network(parameters: Parameters, inputs: Any) -> Any:
    """Return the outputs of each row."""
    scaled = (inputs - parameters["middle"]) / parameters["width"]
    scaled = jnp.clip(scaled, -MAX_INPUT_DEVIATIONS, MAX_INPUT_DEVIATIONS)
    hidden = jax.nn.relu(scaled @ parameters["first"] + parameters["first_bias"])
    hidden = jax.nn.relu(hidden @ parameters["second"] + parameters["second_bias"])
    return hidden @ parameters["last"] + parameters["last_bias"] + scaled @ parameters["past"]


def mask_fixed(gradients: Any) -> Any:
    """Return the gradients without those of fixed parameters, anywhere in a tree of networks."""
    return jax.tree_util.tree_map_with_path(
        lambda path, value: jnp.zeros_like(value) if getattr(path[-1], "key", None) in FIXED else value,
        gradients,
    )


def fit_scaling(parameters: Parameters, inputs: Array) -> Parameters:
    """Return the network with centre and width such that these inputs are spread around 0, about 1 wide."""
    middle, width = inputs.mean(axis=0), np.maximum(inputs.std(axis=0), 0.05)
    return {**parameters, "middle": middle.astype(np.float32), "width": width.astype(np.float32)}


def export_arrays(parameters: Parameters, prefix: str) -> dict[str, Array]:
    """Return the network as the arrays that are shipped."""
    return {prefix + name: np.asarray(parameters[name], np.float32) for name in Network._fields}
