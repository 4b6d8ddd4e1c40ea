"""Knobs: what of a workload moves its objectives, as numbers.

What is not known is taken as steady: it then moves nothing. Options, such as a cache class, are known by name.
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
"""What the names of options start with."""


class ModelInputs(NamedTuple):
    replicas: float
    """Those that have a place."""
    cpu: float
    """Cores of the main container of one pod."""
    memory: float
    """Bytes of the main container of one pod; without a limit it never is short of it."""
    load: float
    """NaN: unknown, as one is that is none: a query may well give less than nothing."""
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
    """Where a workload is, and the places that it could go to: the first row, and the others."""

    matrix: Floats
    """Replicas, cpu, memory and load, a row a place."""
    inputs: Sequence[ModelInputs]


def build_input_batch(before: TargetState, changed: Sequence[TargetState]) -> InputBatch:
    places = [extract_inputs(before), *map(extract_inputs, changed)]
    return InputBatch(np.array([each[:4] for each in places]), places)


@cache
def option_key(prefix: str, name: str | None) -> str:
    """How models name an option: without its vendor, as effects are alike; empty for none."""
    return prefix + name.rpartition("/")[2].lower() if name and name != "None" else ""
