"""Which samples are believed. What no machine can use is a fault of the measurement, and no strategy learns from it.

NaN (no sample), the infinities and negative numbers fail the same test: `0 <= value <= most`.
"""

import numpy as np

from trimtab.sizing.strategy import Floats, Indices

MAX_PLAUSIBLE_CPU = 1e5
"""Cores: ten times the largest machine that there is."""

MAX_PLAUSIBLE_MEMORY = 1e14
"""Bytes: 100 TB, where the VPA recommender ends too."""


def scatter_memory(rows: int, containers: Indices, memory: Floats) -> Floats:
    """What some containers had, as a sample of all: NaN for the others, the most where one is named twice."""
    values = np.full(rows, np.nan)
    believed = (memory >= 0) & (memory <= MAX_PLAUSIBLE_MEMORY)
    np.fmax.at(values, containers[believed], memory[believed])
    return values


def deduplicate_kills(rows: int, containers: Indices, memory: Floats) -> tuple[Indices, Floats]:
    """The containers that were killed, each once, and the most that each had: replicas may be killed with different sizes."""
    had = scatter_memory(rows, containers, memory)
    killed = np.flatnonzero(~np.isnan(had))
    return killed, had[killed]
