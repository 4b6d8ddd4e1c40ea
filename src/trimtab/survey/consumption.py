"""What the pods of each container really used over a window, all of them together: the other half of a bill.

Strategies look at the replica that needs most; money is spent on all of them. Filled part by part, so that the window
itself is never held.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.usage.owners import Owners, WorkloadContainer
from trimtab.usage.trace import Floats
from trimtab.usage.usage import Usage


class Consumed(NamedTuple):
    """Means over the window, of all pods together; peaks of a single one."""

    cpu: float = 0.0
    """Millicores."""
    memory: float = 0.0
    """Bytes."""
    pods: float = 0.0
    """How many there were at a time: of a CronJob, far less than one."""
    cpu_peak: float = 0.0
    memory_peak: float = 0.0


class Consumption:
    """Sums over the steps that were read so far; a step of which nobody was sampled is the source's gap, and no step."""

    def __init__(self) -> None:
        self._sums: dict[WorkloadContainer, Floats] = {}
        self._peaks: dict[WorkloadContainer, Floats] = {}
        self._first: dict[WorkloadContainer, int] = {}
        """The step in which each was first seen: before, it was not there."""
        self._steps = 0
        self.samples = 0

    def take_in(self, usage: Usage, owners: Owners) -> None:
        seen = ~(np.isnan(usage.cpu) & np.isnan(usage.memory))
        seen = seen[seen.any(axis=1)]
        sums = np.stack(
            [np.nansum(usage.cpu, axis=0), np.nansum(usage.memory, axis=0), seen.sum(axis=0)], axis=1
        )
        peaks = np.stack([_highest(usage.cpu), _highest(usage.memory)], axis=1)
        self.samples += int(sums[:, 2].sum())
        for column, (namespace, pod, container) in enumerate(usage.containers):
            workload = owners.of(namespace, pod)
            if workload is not None and seen[:, column].any():
                name = WorkloadContainer.of(workload, container)
                self._sums[name] = self._sums.get(name, 0.0) + sums[column]
                self._peaks[name] = np.maximum(self._peaks.get(name, 0.0), peaks[column])
                first = self._steps + int(seen[:, column].argmax())
                self._first[name] = min(self._first.get(name, first), first)
        self._steps += len(seen)

    def of(self, name: WorkloadContainer) -> Consumed:
        """What one container used; nothing where it was never seen."""
        if name not in self._sums:
            return Consumed()
        cpu, memory, pods = (self._sums[name] / (self._steps - self._first[name])).tolist()
        cpu_peak, memory_peak = self._peaks[name].tolist()
        return Consumed(cpu * 1000, memory, pods, cpu_peak * 1000, memory_peak)


def _highest(grid: Floats) -> Floats:
    highest: Floats = np.fmax.reduce(grid, axis=0, initial=0.0)
    return highest
