"""Usage of workloads' containers over time: the input of sizing and of back-tests.

`aggregation` computes it from the usage of pods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from trimtab.kube.kinds.pods import Role
from trimtab.usage.pod_ownership import WorkloadContainer
from trimtab.usage.trace import Floats, Trace
from trimtab.usage.usage import PodContainer

Indices = npt.NDArray[np.intp]


class UsageObserver(Protocol):
    """A consumer of usage, such as a sizing strategy."""

    def observe(self, t: float, cpu: Floats, memory: Floats) -> None: ...
    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None: ...


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

    def feed(self, observer: UsageObserver) -> None:
        """Pass all samples to an observer in chronological order, replica by replica within a step."""
        ooms = iter(self.ooms)
        oom = next(ooms, None)
        replicas = [
            np.flatnonzero(self.replica == nth) for nth in range(int(self.replica.max(initial=0)) + 1)
        ]
        for row in range(len(self.cpu)):
            t = self.start + row * self.step
            while oom is not None and oom.at <= t:
                observer.observe_oom(oom.at, np.array([oom.container], np.intp), np.array([oom.memory]))
                oom = next(ooms, None)
            for nth, columns in enumerate(replicas):
                cpu, memory = (
                    self._scatter_columns(self.cpu[row], columns),
                    self._scatter_columns(self.memory[row], columns),
                )
                if nth == 0 or not (np.isnan(cpu) & np.isnan(memory)).all():
                    observer.observe(t, cpu, memory)

    def _scatter_columns(self, row: Floats, columns: Indices) -> Floats:
        """Return one value per container, taken from these columns."""
        values = np.full(len(self.containers), np.nan)
        values[self.container[columns]] = row[columns]
        return values
