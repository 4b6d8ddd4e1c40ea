"""Knobs: what of a workload moves its objectives, as numbers.

What is not known is taken as steady: it then moves nothing. Options, such as a cache class, are known by name.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from trimtab.intents.state import State

CACHE = "cache:"
POWER = "power:"
"""What the names of options start with."""


class Knobs(NamedTuple):
    replicas: float
    cpu: float
    """Cores of the main container of one pod."""
    memory: float
    """Bytes of the main container of one pod; without a limit it never is short of it."""
    load: float
    cache: str
    power: str


def knobs(state: State, *, usual_load: float = 1.0) -> Knobs:
    size = state.size
    cpu = memory = None
    if size is not None:
        cpu, memory = size.cpu, size.memory
    return Knobs(
        float(max(1, state.replicas)),
        cpu or 1.0,
        memory or inf,
        state.load or usual_load,
        option(CACHE, state.cache_class),
        option(POWER, state.power_profile),
    )


def option(prefix: str, name: str | None) -> str:
    """How models name an option: without its vendor, as effects are alike; empty for none."""
    return prefix + name.rpartition("/")[2].lower() if name and name != "None" else ""
