"""The demand of each container in a step: its workload's demand, spread randomly over the ready pods.

Chance is counted, not drawn: a number made of the seed, the container and the step, so that nothing depends on who was
asked first, or on how many there are.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from trimtab.lab.simulator.physics import Floats, Indices

Serials = npt.NDArray[np.uint64]

MEMORY_NOISE_SHARE = 0.5
"""The lasting difference in memory between replicas, beside the step-wise difference in CPU."""


@njit(cache=True, error_model="numpy")
def hash_to_noise(seed: int, serial: int, step: int) -> float:
    """Return a number from -1 to 1 with mean 0, always the same for the same three inputs (splitmix64)."""
    word = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
    word ^= (np.uint64(serial) + np.uint64(1)) * np.uint64(0xBF58476D1CE4E5B9)
    word ^= (np.uint64(step) + np.uint64(1)) * np.uint64(0x94D049BB133111EB)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word ^= word >> np.uint64(31)
    return float(word >> np.uint64(11)) / 4503599627370496.0 - 1.0


@njit(cache=True, error_model="numpy")
def compute_demand(
    cpu_series: Floats,
    memory_series: Floats,
    column: Indices,
    workload: Indices,
    serial: Serials,
    load_share: Floats,
    noise: float,
    seed: int,
    step: int,
    cpu: Floats,
    memory: Floats,
) -> None:
    """Fill `cpu` and `memory`; `spread` is, for each workload, how much of its load one ready pod has."""
    for row in range(len(column)):
        if column[row] < 0:
            cpu[row] = 0.0
            memory[row] = 0.0
            continue
        differs = 1.0 + noise * 1.7320508 * hash_to_noise(seed, serial[row], step)
        cpu[row] = cpu_series[column[row]] * load_share[workload[row]] * max(differs, 0.0)
        memory[row] = memory_series[column[row]] * max(
            0.0, 1.0 + MEMORY_NOISE_SHARE * noise * hash_to_noise(seed, serial[row], -1)
        )
