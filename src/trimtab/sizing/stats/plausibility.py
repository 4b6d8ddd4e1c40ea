"""The range of plausible samples. A value that no machine can use is a measurement error, and no strategy
learns from it.

NaN (no sample), the infinities and negative numbers fail the same test: `0 <= value <= most`.
"""

import numpy as np

from trimtab.sizing.arrays import Floats, Indices

MAX_PLAUSIBLE_CPU = 1e5
"""The most plausible CPU usage in cores: ten times the largest machine."""

MAX_PLAUSIBLE_MEMORY = 1e14
"""The most plausible memory usage in bytes: 100 TB, as in the VPA recommender."""


def scatter_memory(rows: int, containers: Indices, memory: Floats) -> Floats:
    """Return the memory of some containers as a sample of all: NaN for the others, the highest if one is
    named twice.
    """
    values = np.full(rows, np.nan)
    believed = (memory >= 0) & (memory <= MAX_PLAUSIBLE_MEMORY)
    np.fmax.at(values, containers[believed], memory[believed])
    return values


def deduplicate_kills(rows: int, containers: Indices, memory: Floats) -> tuple[Indices, Floats]:
    """Return the containers that were killed, each once, with the most memory of its replicas."""
    had = scatter_memory(rows, containers, memory)
    killed = np.flatnonzero(~np.isnan(had))
    return killed, had[killed]
