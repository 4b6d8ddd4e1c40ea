"""The reward of an hour: the costs of a size, each with a weight that can be set.

All costs are shares or counts of the hour, so that a small container counts as much as a large one. The reward is
minus their weighted sum: at most 0, and 0 only for a container that used exactly its request and had neither changes
nor harm. An hour without samples has costs of NaN, and sums of rewards must leave it out (`measured`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.usage.trace import Floats

(
    CPU_REQUESTED,
    CPU_OVER,
    CPU_UNDER,
    CPU_MISSING,
    CPU_WANTED,
    THROTTLED,
    CPU_STEPS,
    MEMORY_REQUESTED,
    MEMORY_OVER,
    OOMS,
    MEMORY_STEPS,
) = range(11)
SUMS = 11
"""The sums over the steps of an hour: CPU requested, its unused part, steps over the request, and so on."""


class Weights(NamedTuple):
    """The weight of each cost."""

    cpu_slack: float = 1.0
    """The share of requested CPU that was not used."""
    memory_slack: float = 1.0
    """The share of requested memory that was not used."""
    under: float = 4.0
    """The share of time in which more CPU was wanted than requested."""
    unserved: float = 4.0
    """The demand over the CPU request, as a share of all demand."""
    throttled: float = 1.0
    """The share of the kernel's periods in which the CPU limit held the container back."""
    oom: float = 20.0
    """Each OOM kill."""
    change: float = 0.2
    """Each change of a request, of CPU or of memory."""


def find_measured(sums: Floats) -> npt.NDArray[np.bool_]:
    """Return which containers have any sample in the hour."""
    found: npt.NDArray[np.bool_] = (sums[:, CPU_STEPS] > 0) | (sums[:, MEMORY_STEPS] > 0)
    return found


def compute_costs(sums: Floats, changes: npt.NDArray[np.int64]) -> Floats:
    """Return the costs of an hour in the order of `Weights`, with a row for each container; NaN where nothing was
    measured.
    """
    of_cpu, of_memory, of_any = sums[:, CPU_STEPS] > 0, sums[:, MEMORY_STEPS] > 0, find_measured(sums)
    parts = [
        (of_cpu, _share(sums[:, CPU_OVER], sums[:, CPU_REQUESTED])),
        (of_memory, _share(sums[:, MEMORY_OVER], sums[:, MEMORY_REQUESTED])),
        (of_cpu, _share(sums[:, CPU_UNDER], sums[:, CPU_STEPS])),
        (of_cpu, _share(sums[:, CPU_MISSING], sums[:, CPU_WANTED])),
        (of_cpu, _share(sums[:, THROTTLED], sums[:, CPU_STEPS])),
        (of_memory, sums[:, OOMS]),
        (of_any, changes.astype(np.float64)),
    ]
    return np.stack([np.where(known, cost, np.nan) for known, cost in parts], axis=1)


def _share(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
