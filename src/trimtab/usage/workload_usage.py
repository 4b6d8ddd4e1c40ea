"""Usage of workloads' containers over time: the input of sizing and of back-tests.

`aggregation` computes it from the usage of pods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.kube.kinds.pods import Role
from trimtab.usage.pod_ownership import WorkloadContainer
from trimtab.usage.trace import Floats, Trace
from trimtab.usage.usage import PodContainer

Indices = npt.NDArray[np.intp]


class WorkloadOom(NamedTuple):
    """An OOM kill of a workload's container."""

    at: float
    container: int
    """The index in `WorkloadUsage.containers`."""
    memory: float
    """The highest sample before the kill; NaN if there was none."""


@dataclass(frozen=True, slots=True)
class WorkloadUsage:
    """Samples on a regular time grid: one row per step, one column per workload container or replica."""

    containers: tuple[WorkloadContainer, ...]
    roles: tuple[Role, ...]
    start: float
    step: float
    cpu: Floats
    """The CPU usage in cores."""
    memory: Floats
    """The memory usage in bytes."""
    throttled: Floats | None
    container: Indices
    """The index in `containers` of each column."""
    replica: Indices
    """The replica number of each column, from 0; always 0 for usage merged over replicas."""
    ooms: tuple[WorkloadOom, ...]
    """The kills in chronological order."""
    unowned: tuple[PodContainer, ...]
    """The pod containers that are left out because no workload was found for them."""

    def to_trace(self) -> Trace:
        """Return the trace for a back-test; replicas are merged by their maximum."""
        begins = np.flatnonzero(self.replica == 0)
        cpu, memory = (
            np.fmax.reduceat(grid, begins, axis=1) if len(begins) else grid
            for grid in (self.cpu, self.memory)
        )
        names = tuple(map(str, self.containers))
        return Trace(names=names, start=self.start, step=self.step, cpu=cpu, memory=memory)
