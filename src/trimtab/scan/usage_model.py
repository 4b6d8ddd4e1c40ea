"""Learn from the usage history of a scan: evidence, one cohort per strategy, and usage totals.

Strategies size for the highest replica, but all replicas cost money, so the usage of all pods of each container is summed
to be compared with their cost. Parts are added one by one, so that the whole window is never in memory.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.operator.cluster_state import ClusterState
from trimtab.recommender.cohort import ContainerEstimate, StrategySpec
from trimtab.recommender.cohort_manager import CohortManager, observe_usage
from trimtab.recommender.oom_kills import ObservedSize, OomKill, read_pod_status
from trimtab.recommender.workload import count_containers_per_pod, list_sized_containers
from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.trace import Floats
from trimtab.usage.usage import Usage
from trimtab.usage.workload_usage import Indices


class UsageModel:
    """The learned state of all containers: usage part by part in time order, then once the OOM kills of the pods."""

    def __init__(
        self,
        state: ClusterState,
        workloads: Mapping[StrategySpec, Collection[Workload]],
        *,
        now: float,
    ) -> None:
        """Create the model of these workloads, which each strategy spec learns."""
        self.owners = state.build_owner_index()
        self.totals = UsageAccumulator(now)
        self._now = now
        self._sizes: list[ObservedSize] = []
        self._kills: list[OomKill] = []
        containers: dict[WorkloadKey, dict[WorkloadContainer, int]] = {}
        for workload in {each.key: each for known in workloads.values() for each in known}.values():
            pods, ended = state.list_pods(workload), state.list_failed_pods(workload)
            names = list_sized_containers(workload, pods)
            containers[workload.key] = dict.fromkeys(names, count_containers_per_pod(workload, pods))
            sizes, kills = read_pod_status(workload, pods, names, ended=ended)
            self._sizes += sizes
            self._kills += (
                kill._replace(at=min(kill.at, now)) for kill in kills
            )  # a node's clock may be ahead
        self._cohorts = CohortManager()
        every = [name for known in containers.values() for name in known]
        self._cohorts.add(StrategySpec.for_evidence(), every, until=0.0)
        for spec, sized in workloads.items():
            own = {name: pods for each in sized for name, pods in containers[each.key].items()}
            self._cohorts.add(spec, own, until=0.0).share_pods(own)

    def observe_usage(self, usage: Usage, *, until: float) -> None:
        """Learn one part of the usage history, which ends at `until` as a whole."""
        self.totals.observe_usage(usage, self.owners)
        for error in observe_usage(self._cohorts, usage, self.owners, running=None, until=until).values():
            raise error

    def observe_ooms(self) -> None:
        """Learn the OOM kills in pod statuses after the usage history; kills known from usage hit the current limits."""
        self._cohorts.observe_sizes(self._sizes, now=self._now)
        if self._cohorts.observe_ooms(self._kills):
            for cohort in self._cohorts.iter_strategies():
                cohort.discard_results()

    def estimate(
        self, name: WorkloadContainer, strategy_spec: StrategySpec, *, now: float, is_long_running: bool
    ) -> ContainerEstimate | None:
        found = self._cohorts.estimate([name], strategy_spec, now=now, is_long_running=is_long_running)
        return found.get(name)


Bools = npt.NDArray[np.bool_]


class UsageTotals(NamedTuple):
    """The mean usage of all pods together over the window, and the peaks of a single pod."""

    cpu: float = 0.0
    """The mean CPU usage in millicores."""
    memory: float = 0.0
    """The mean memory usage in bytes."""
    pods: float = 0.0
    """The mean number of pods; far below one for a CronJob."""
    cpu_peak: float = 0.0
    memory_peak: float = 0.0


class UsageAccumulator:
    """Accumulates usage over the steps read so far.

    A step without any sample is a gap of the source, and does not count, if a long-running workload was sampled before
    it. If only Jobs were sampled before, they are idle and the step counts.
    """

    def __init__(self, now: float) -> None:
        self._now = now
        self._sums: dict[WorkloadContainer, Floats] = {}
        self._peaks: dict[WorkloadContainer, Floats] = {}
        self._first: dict[WorkloadContainer, int] = {}
        """The first step with a sample, per container; before it the container did not exist."""
        self._times: list[float] = []
        """The times of the counted steps."""
        self._first_known_step = math.inf
        """The first step with any sample; the source has no data before it."""
        self._had_long_running = False
        """True if the last step with samples had one of a long-running workload."""
        self.samples = 0

    def mark_known_from_start(self) -> None:
        """Record that the source had data from the first step: containers that appear later were idle before."""
        # A CronJob that is alone in its namespace has no sample before its first run: an hour a month would cost a month.
        self._first_known_step = 0

    def observe_usage(self, usage: Usage, owners: PodOwnerIndex) -> None:
        workloads = [owners.find_workload(namespace, pod) for namespace, pod, _ in usage.containers]
        sampled = ~(np.isnan(usage.cpu) & np.isnan(usage.memory))
        long_running = [key is not None and key.is_long_running for key in workloads]
        are_steps = self._select_steps(usage.times, sampled, np.array(long_running, np.bool_))
        sampled, steps = sampled[are_steps], len(self._times)
        if sampled.any():
            self._first_known_step = min(self._first_known_step, steps + int(sampled.any(axis=1).argmax()))
        there = sampled.sum(axis=0)
        sums = np.stack([_sum_columns(usage.cpu, there), _sum_columns(usage.memory, there), there], axis=1)
        peaks = np.stack([_max_columns(usage.cpu), _max_columns(usage.memory)], axis=1)
        self.samples += int(there.sum())
        for column, workload in enumerate(workloads):
            if workload is not None and there[column]:
                name = WorkloadContainer.from_workload(workload, usage.containers[column].container)
                self._sums[name] = self._sums.get(name, 0.0) + sums[column]
                self._peaks[name] = np.maximum(self._peaks.get(name, 0.0), peaks[column])
                first = steps + int(sampled[:, column].argmax())
                self._first[name] = min(self._first.get(name, first), first)
        self._times += usage.times[are_steps].tolist()

    def _select_steps(self, times: Floats, sampled: Bools, long_running: Bools) -> Bools:
        """Select the rows that count: neither gaps of the source nor future steps."""
        any_sampled, any_long_running = sampled.sum(axis=1) > 0, sampled[:, long_running].sum(axis=1) > 0
        # Each row looks at the last row with samples before it: after a long-running workload silence is a gap of the
        # source, after a Job it is idle time, which lowers the cost.
        latest = np.maximum.accumulate(np.where(any_sampled, np.arange(len(sampled)), -1))
        before = np.where(latest < 0, self._had_long_running, any_long_running[latest])
        if len(before):
            self._had_long_running = bool(before[-1])
        counted: Bools = any_sampled | (~before & (times <= self._now))
        return counted

    def get(self, name: WorkloadContainer, *, idle_since: float = math.inf) -> UsageTotals:
        """Return the usage of one container; zero if it was never sampled.

        `idle_since` is the creation time of a CronJob, which may be long before its first sampled run.
        """
        if name not in self._sums:
            return UsageTotals()
        first = min(self._first[name], max(bisect_left(self._times, idle_since), self._first_known_step))
        cpu, memory, pods = (self._sums[name] / (len(self._times) - first)).tolist()
        cpu_peak, memory_peak = self._peaks[name].tolist()
        return UsageTotals(cpu * 1000, memory, pods, cpu_peak * 1000, memory_peak)


def _sum_columns(grid: Floats, there: Indices) -> Floats:
    """Sum each column over all steps in which its pod was sampled.

    Where only the other resource has a sample, as at both ends of a run where no rate is known, the column's mean is
    used.
    """
    known = np.count_nonzero(~np.isnan(grid), axis=0)
    total: Floats = np.nansum(grid, axis=0) * there / np.maximum(known, 1)
    return total


def _max_columns(grid: Floats) -> Floats:
    highest: Floats = np.fmax.reduce(grid, axis=0, initial=0.0)
    return highest
