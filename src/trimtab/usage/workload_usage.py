"""Usage of workloads' containers over time, aggregated from the usage of pods' containers: the input of sizing and of
back-tests.

All replicas of a workload have the same size, so the replica that uses most decides: `max_over_replicas`
takes the highest value of each step. `per_replica` keeps the replicas as simultaneous observations, which
VPA's histogram needs, and `per_pod` keeps each pod apart, as KRR does. Either way the pods of all runs of a Job or CronJob, and of all rollouts of a
Deployment, are grouped under one name. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.kube.kinds.pods import Role
from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.trace import Floats, Trace
from trimtab.usage.usage import PodContainer, Usage

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
    pods: tuple[PodContainer, ...] = ()
    """The pod of each column; empty where a column is no single pod."""

    def to_trace(self) -> Trace:
        """Return the trace for a back-test; replicas are merged by their maximum."""
        begins = np.flatnonzero(self.replica == 0)
        cpu, memory = (
            np.fmax.reduceat(grid, begins, axis=1) if len(begins) else grid
            for grid in (self.cpu, self.memory)
        )
        names = tuple(map(str, self.containers))
        return Trace(names=names, start=self.start, step=self.step, cpu=cpu, memory=memory)


_ROWS_PER_BLOCK = 8
_STEPS_BEFORE_OOM = 5
"""The number of steps before a kill that are searched for the highest memory.

The last sample before a kill may already belong to the restarted container.
"""


def max_over_replicas(
    usage: Usage,
    owners: PodOwnerIndex,
    *,
    skip_startup: float = 0.0,
    started: Mapping[tuple[str, str], float] | None = None,
) -> WorkloadUsage:
    """Return the highest usage over all replicas for each workload container, per step and per resource.

    With `skip_startup`, that many seconds after each container start are left out. A start is detected in the
    samples, and taken from `started` (by namespace and pod name) where it is given.
    """
    groups = _ColumnGroups.from_usage(usage, owners)
    hidden = _mask_startup(usage, skip_startup, started or {})

    def highest(grid: Floats) -> Floats:
        answer = np.full((len(grid), len(groups.containers)), np.nan)
        for top in range(0, len(grid), _ROWS_PER_BLOCK):  # copy a few rows at a time to bound memory
            rows = slice(top, top + _ROWS_PER_BLOCK)
            block = np.where(hidden[rows], np.nan, grid[rows])[:, groups.order]
            if len(groups.containers):
                answer[rows] = np.fmax.reduceat(block, groups.starts, axis=1)
        return answer

    count = len(groups.containers)
    return groups.build_usage(
        usage,
        owners,
        grids=(
            highest(usage.cpu),
            highest(usage.memory),
            None if usage.throttled is None else highest(usage.throttled),
        ),
        container=np.arange(count, dtype=np.intp),
        replica=np.zeros(count, np.intp),
    )


def per_replica(
    usage: Usage,
    owners: PodOwnerIndex,
    *,
    skip_startup: float = 0.0,
    started: Mapping[tuple[str, str], float] | None = None,
) -> WorkloadUsage:
    """Return one column per replica, as many as a container ever had at the same time."""
    groups = _ColumnGroups.from_usage(usage, owners)
    hidden = _mask_startup(usage, skip_startup, started or {})
    grids: tuple[list[Floats], list[Floats], list[Floats]] = ([], [], [])
    container: list[int] = []
    replica: list[int] = []
    for number, columns in enumerate(groups.columns):
        found = [
            np.where(hidden[:, columns], np.nan, grid[:, columns])
            for grid in (usage.cpu, usage.memory, usage.throttled)
            if grid is not None
        ]
        absent = np.isnan(found[0]) & np.isnan(found[1])
        # Move each step's samples to the front, so that a new replica reuses the column of one that ended.
        order = np.argsort(absent, axis=1, kind="stable")
        width = max(1, int((~absent).sum(axis=1).max(initial=0)))
        for grid, kept in zip(found, grids, strict=False):
            kept.append(np.take_along_axis(grid, order, axis=1)[:, :width])
        container += [number] * width
        replica += range(width)

    def side_by_side(kept: Sequence[Floats]) -> Floats:
        return np.hstack(kept) if kept else np.empty((usage.steps, 0))

    return groups.build_usage(
        usage,
        owners,
        grids=(
            side_by_side(grids[0]),
            side_by_side(grids[1]),
            None if usage.throttled is None else side_by_side(grids[2]),
        ),
        container=np.array(container, np.intp),
        replica=np.array(replica, np.intp),
    )


def per_pod(usage: Usage, owners: PodOwnerIndex) -> WorkloadUsage:
    """Return one column per pod, also for the pods that ended."""
    groups = _ColumnGroups.from_usage(usage, owners)
    order = groups.order
    found = groups.build_usage(
        usage,
        owners,
        grids=(
            usage.cpu[:, order],
            usage.memory[:, order],
            None if usage.throttled is None else usage.throttled[:, order],
        ),
        container=np.repeat(np.arange(len(groups.columns)), [len(columns) for columns in groups.columns]),
        replica=np.array([number for columns in groups.columns for number in range(len(columns))], np.intp),
    )
    return replace(found, pods=tuple(usage.containers[column] for column in order))


@dataclass(frozen=True, slots=True)
class _ColumnGroups:
    """The columns of pod usage that belong to each container of a workload."""

    containers: tuple[WorkloadContainer, ...]
    columns: list[list[int]]
    unowned: tuple[PodContainer, ...]

    @classmethod
    def from_usage(cls, usage: Usage, owners: PodOwnerIndex) -> _ColumnGroups:
        groups: dict[WorkloadContainer, list[int]] = defaultdict(list)
        unowned = []
        for column, (namespace, pod, container) in enumerate(usage.containers):
            workload = owners.find_workload(namespace, pod)
            if workload is None:
                unowned.append(usage.containers[column])
            else:
                groups[WorkloadContainer.from_workload(workload, container)].append(column)
        names = sorted(groups)
        return cls(tuple(names), [groups[name] for name in names], tuple(unowned))

    @property
    def order(self) -> Indices:
        return np.array([column for columns in self.columns for column in columns], np.intp)

    @property
    def starts(self) -> Indices:
        """The position in `order` at which each group begins."""
        return np.cumsum([0, *map(len, self.columns[:-1])]).astype(np.intp)

    def build_usage(
        self,
        usage: Usage,
        owners: PodOwnerIndex,
        *,
        grids: tuple[Floats, Floats, Floats | None],
        container: Indices,
        replica: Indices,
    ) -> WorkloadUsage:
        return WorkloadUsage(
            containers=self.containers,
            roles=tuple(map(owners.container_role, self.containers)),
            start=usage.start,
            step=usage.step,
            cpu=grids[0],
            memory=grids[1],
            throttled=grids[2],
            container=container,
            replica=replica,
            ooms=self._collect_ooms(usage, owners),
            unowned=self.unowned,
        )

    def _collect_ooms(self, usage: Usage, owners: PodOwnerIndex) -> tuple[WorkloadOom, ...]:
        number = {name: index for index, name in enumerate(self.containers)}
        column = {name: index for index, name in enumerate(usage.containers)}
        found = []
        for at, name in usage.ooms or ():
            workload = owners.find_workload(name.namespace, name.pod)
            container = (
                number.get(WorkloadContainer.from_workload(workload, name.container)) if workload else None
            )
            if container is not None:
                row = int((at - usage.start) / usage.step)
                rows = slice(max(0, row - _STEPS_BEFORE_OOM), max(0, row + 1))
                before = usage.memory[rows, column[name]] if name in column else np.empty(0)
                found.append(WorkloadOom(at, container, float(np.fmax.reduce(before, initial=np.nan))))
        return tuple(sorted(found))


def _mask_startup(
    usage: Usage, seconds: float, started: Mapping[tuple[str, str], float]
) -> npt.NDArray[np.bool_]:
    """Mark the samples of containers that have just started."""
    hidden = np.zeros(usage.cpu.shape, np.bool_)
    width = int(np.ceil(seconds / usage.step))
    if width <= 0:
        return hidden
    absent = np.isnan(usage.cpu) & np.isnan(usage.memory)
    begins = ~absent[1:] & absent[:-1]
    for row, column in zip(*np.nonzero(begins), strict=True):
        hidden[row + 1 : row + 1 + width, column] = True
    times = usage.times
    for column, (namespace, pod, _) in enumerate(usage.containers):
        if (start := started.get((namespace, pod))) is not None:
            hidden[(times >= start) & (times < start + seconds), column] = True
    return hidden
