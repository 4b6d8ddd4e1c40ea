"""Small networks, computed row by row in compiled loops: the same bits for a container whoever stands beside it.

A network has two hidden layers and a straight way past them. It is trained elsewhere (`trimtab train`) and only read
here: arrays by name in an .npz file without any code in it, and beside it a card that says how it was made. So that
sizing needs no library for learning.
"""

from __future__ import annotations

import zipfile
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from trimtab.errors import TrimtabError
from trimtab.sizing.state import Array, Floats

MAX_INPUT_DEVIATIONS = 6.0
"""Inputs are cut at so many standard deviations: nothing is known farther out."""


class Network(NamedTuple):
    """The parameters of the network: centre and width of each input, then the layers."""

    middle: Floats
    width: Floats
    first: Floats
    first_bias: Floats
    second: Floats
    second_bias: Floats
    last: Floats
    last_bias: Floats
    past: Floats
    """From the inputs straight to the outputs."""

    @property
    def input_count(self) -> int:
        return len(self.middle)

    @property
    def output_count(self) -> int:
        return len(self.last_bias)


@njit(cache=True, error_model="numpy")
def forward(network: Network, features: Floats, out: Floats) -> None:
    """Return the outputs of each row."""
    first, second = np.empty(len(network.first_bias)), np.empty(len(network.second_bias))
    inputs = np.empty(len(network.middle))
    for row in range(features.shape[0]):
        for i in range(inputs.size):
            value = (features[row, i] - network.middle[i]) / network.width[i]
            inputs[i] = min(max(value, -MAX_INPUT_DEVIATIONS), MAX_INPUT_DEVIATIONS)
        _apply_layer(inputs, network.first, network.first_bias, first)
        _apply_relu(first)
        _apply_layer(first, network.second, network.second_bias, second)
        _apply_relu(second)
        _apply_layer(second, network.last, network.last_bias, out[row])
        for i in range(inputs.size):
            for j in range(out.shape[1]):
                out[row, j] += inputs[i] * network.past[i, j]


@njit(cache=True, error_model="numpy")
def _apply_layer(inputs: Floats, weights: Floats, bias: Floats, out: Floats) -> None:
    for j in range(out.size):
        out[j] = bias[j]
    for i in range(inputs.size):
        for j in range(out.size):
            out[j] += inputs[i] * weights[i, j]


@njit(cache=True, error_model="numpy")
def _apply_relu(values: Floats) -> None:
    for i in range(values.size):
        values[i] = max(values[i], 0.0)


def predict(network: Network, features: Floats) -> Floats:
    """Return the outputs of each input row."""
    out = np.empty((len(features), network.output_count))
    forward(network, features, out)
    return out


@cache
def load_weights(weights: str) -> dict[str, Array]:
    """Load a file of weights: one that ships with Trimtab by its name, or any by its path."""
    path = Path(weights)
    if path.suffix != ".npz":
        path = Path(str(files("trimtab.lab.neural"))) / "weights" / f"{weights}.npz"
    try:
        with np.load(path, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise TrimtabError(
            f"weights: {weights}: cannot be read: {error}; name a file that `trimtab train` has written"
        ) from None


def build_network(arrays: dict[str, Array], prefix: str, *, inputs: int, source: str) -> Network:
    """Build the network with this prefix; raise an error if it was made for another number of inputs."""
    try:
        made = Network(*(_as_floats(arrays[prefix + name]) for name in Network._fields))
    except KeyError as missing:
        raise TrimtabError(
            f"weights: {source}: has no {missing.args[0]!r}; the file is from another learner; name a file of this one"
        ) from None
    if made.input_count != inputs:
        raise TrimtabError(
            f"weights: {source}: made for {made.input_count} inputs, not {inputs}; train it again with this version"
        )
    return made


def _as_floats(array: Any) -> Floats:
    return np.ascontiguousarray(array, np.float64)
