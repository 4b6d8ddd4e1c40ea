"""Usage of workloads' containers over time: what sizing learns from, and a back-test replays.

It is made from usage of pods by `merge`.
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
    """What learns from usage, as a `sizing` strategy does."""

    def observe(self, t: float, cpu: Floats, memory: Floats) -> None: ...
    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None: ...


class WorkloadOom(NamedTuple):
    """A kill of one of a workload's containers."""

    at: float
    container: int
    """Which of `WorkloadUsage.containers`."""
    memory: float
    """The highest sample before it; NaN when there was none."""


@dataclass(frozen=True, slots=True)
class WorkloadUsage:
    """Samples on a regular grid of time: a row a step, a column a container of a workload or one of its replicas."""

    containers: tuple[WorkloadContainer, ...]
    roles: tuple[Role, ...]
    start: float
    step: float
    cpu: Floats
    """Cores."""
    memory: Floats
    """Bytes."""
    throttled: Floats | None
    container: Indices
    """Which of `containers` a column is of."""
    replica: Indices
    """Which of its replicas: 0 for the first, and for all of them where they are merged."""
    ooms: tuple[WorkloadOom, ...]
    """In the order of time."""
    unowned: tuple[PodContainer, ...]
    """Of which no workload could be told; they are left out."""

    def to_trace(self) -> Trace:
        """For a back-test; of replicas kept apart, the one that used most."""
        begins = np.flatnonzero(self.replica == 0)
        cpu, memory = (
            np.fmax.reduceat(grid, begins, axis=1) if len(begins) else grid
            for grid in (self.cpu, self.memory)
        )
        names = tuple(map(str, self.containers))
        return Trace(names=names, start=self.start, step=self.step, cpu=cpu, memory=memory)

    def feed(self, observer: UsageObserver) -> None:
        """Let somebody learn from all of it, in the order of time; of a step, from one replica after the other."""
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
        """A value for each container, from these columns."""
        values = np.full(len(self.containers), np.nan)
        values[self.container[columns]] = row[columns]
        return values
