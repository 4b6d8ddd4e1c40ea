"""Inputs of the effect models: the properties of a workload that influence its objectives, as numbers.

An unknown property counts as constant. Options, such as a cache class, are identified by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import inf, nan
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.intents.state import PodState, TargetState

Floats = npt.NDArray[np.float64]

CACHE = "cache:"
POWER = "power:"
"""The prefixes of option names."""


class ModelInputs(NamedTuple):
    replicas: float
    """The number of scheduled replicas."""
    cpu: float
    """The cores of the main container of one pod."""
    memory: float
    """The bytes of the main container of one pod; infinity without a limit."""
    load: float
    """The load; NaN if it is unknown or not positive, because a query may return negative values."""
    cache: str
    power: str
    pods: tuple[PodState, ...]


def extract_inputs(state: TargetState) -> ModelInputs:
    cpu = memory = None
    if (size := state.main_size) is not None:
        cpu = size.cpu_limit or size.cpu_request
        memory = size.memory_limit or size.memory_request
    return ModelInputs(
        float(state.placed),
        cpu or 1.0,
        memory or inf,
        state.load if state.load and state.load > 0 else nan,
        option_key(CACHE, state.cache_class) if state.cache_class else "",
        option_key(POWER, state.power_profile) if state.power_profile else "",
        state.pods,
    )


class InputBatch(NamedTuple):
    """The current inputs of a workload, in the first row, and the inputs of its possible states."""

    matrix: Floats
    """Replicas, CPU, memory and load, one row per state."""
    inputs: Sequence[ModelInputs]


def build_input_batch(before: TargetState, changed: Sequence[TargetState]) -> InputBatch:
    places = [extract_inputs(before), *map(extract_inputs, changed)]
    return InputBatch(np.array([each[:4] for each in places]), places)


@cache
def option_key(prefix: str, name: str | None) -> str:
    """Return the name of an option in models: without its vendor, because effects are alike; empty for none."""
    return prefix + name.rpartition("/")[2].lower() if name and name != "None" else ""
