"""What the pods of each container really used over a window, all of them together: the other half of a bill.

Strategies look at the replica that needs most; money is spent on all of them. Filled part by part, so that the window
itself is never held.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.trace import Floats
from trimtab.usage.usage import Usage
from trimtab.usage.workload_usage import Indices

Bools = npt.NDArray[np.bool_]


class UsageTotals(NamedTuple):
    """Means over the window, of all pods together; peaks of a single one."""

    cpu: float = 0.0
    """Millicores."""
    memory: float = 0.0
    """Bytes."""
    pods: float = 0.0
    """How many there were at a time: of a CronJob, far less than one."""
    cpu_peak: float = 0.0
    memory_peak: float = 0.0


class UsageAccumulator:
    """Sums over the steps that were read so far.

    A step of which nobody was sampled is the source's gap, and no step, where somebody who runs on was there before it;
    where only Jobs were, they rest.
    """

    def __init__(self, now: float) -> None:
        self._now = now
        self._sums: dict[WorkloadContainer, Floats] = {}
        self._peaks: dict[WorkloadContainer, Floats] = {}
        self._first: dict[WorkloadContainer, int] = {}
        """The step in which each was first seen: before, it was not there."""
        self._times: list[float] = []
        """Of the steps."""
        self._first_known_step = math.inf
        """The step in which anybody was first seen: before, the source knew nothing."""
        self._had_long_running = False
        """Whether anybody who runs on was there when anybody was last seen."""
        self.samples = 0

    def mark_known_from_start(self) -> None:
        """The source knew of others from the first step on: whoever is seen later rested before."""
        self._first_known_step = 0

    def observe_usage(self, usage: Usage, owners: PodOwnerIndex) -> None:
        workloads = [owners.find_workload(namespace, pod) for namespace, pod, _ in usage.containers]
        seen = ~(np.isnan(usage.cpu) & np.isnan(usage.memory))
        lasting = [key is not None and key.is_long_running for key in workloads]
        are_steps = self._select_steps(usage.times, seen, np.array(lasting, np.bool_))
        seen, steps = seen[are_steps], len(self._times)
        if seen.any():
            self._first_known_step = min(self._first_known_step, steps + int(seen.any(axis=1).argmax()))
        there = seen.sum(axis=0)
        sums = np.stack([_sum_columns(usage.cpu, there), _sum_columns(usage.memory, there), there], axis=1)
        peaks = np.stack([_max_columns(usage.cpu), _max_columns(usage.memory)], axis=1)
        self.samples += int(there.sum())
        for column, workload in enumerate(workloads):
            if workload is not None and there[column]:
                name = WorkloadContainer.from_workload(workload, usage.containers[column].container)
                self._sums[name] = self._sums.get(name, 0.0) + sums[column]
                self._peaks[name] = np.maximum(self._peaks.get(name, 0.0), peaks[column])
                first = steps + int(seen[:, column].argmax())
                self._first[name] = min(self._first.get(name, first), first)
        self._times += usage.times[are_steps].tolist()

    def _select_steps(self, times: Floats, seen: Bools, lasting: Bools) -> Bools:
        """Which rows count: not the source's gaps, nor what is still to come."""
        anyone, steady = seen.sum(axis=1) > 0, seen[:, lasting].sum(axis=1) > 0
        latest = np.maximum.accumulate(np.where(anyone, np.arange(len(seen)), -1))
        before = np.where(latest < 0, self._had_long_running, steady[latest])
        if len(before):
            self._had_long_running = bool(before[-1])
        counted: Bools = anyone | (~before & (times <= self._now))
        return counted

    def get(self, name: WorkloadContainer, *, resting_since: float = math.inf) -> UsageTotals:
        """What one container used; nothing where it was never seen.

        Of a CronJob that was made long before its first run that was seen, `resting_since` says when.
        """
        if name not in self._sums:
            return UsageTotals()
        first = min(self._first[name], max(bisect_left(self._times, resting_since), self._first_known_step))
        cpu, memory, pods = (self._sums[name] / (len(self._times) - first)).tolist()
        cpu_peak, memory_peak = self._peaks[name].tolist()
        return UsageTotals(cpu * 1000, memory, pods, cpu_peak * 1000, memory_peak)


def _sum_columns(grid: Floats, there: Indices) -> Floats:
    """Over all steps in which a pod was there. Where only the other resource was sampled, as at both ends of a run where a
    rate is not known, this one is taken to be as in the rest.
    """
    known = np.count_nonzero(~np.isnan(grid), axis=0)
    total: Floats = np.nansum(grid, axis=0) * there / np.maximum(known, 1)
    return total


def _max_columns(grid: Floats) -> Floats:
    highest: Floats = np.fmax.reduce(grid, axis=0, initial=0.0)
    return highest
