"""From usage of pods' containers to usage of workloads' containers.

Replicas of a workload have the same size, so what counts is the one that needs most: `merged` takes the highest of
them at each step. `apart` keeps them as observations at the same time, as VPA's histogram wants them. Either way the
pods of all runs of a Job or CronJob, and of all rollouts of a Deployment, come together under one name. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.trace import Floats
from trimtab.usage.usage import PodContainer, Usage
from trimtab.usage.workload_usage import Indices, WorkloadOom, WorkloadUsage

_ROWS_PER_BLOCK = 8
_STEPS_BEFORE_OOM = 5
"""Steps in which the highest memory is looked for: the last sample before a kill may be of the container after it."""


def max_over_replicas(
    usage: Usage,
    owners: PodOwnerIndex,
    *,
    skip_startup: float = 0.0,
    started: Mapping[tuple[str, str], float] | None = None,
) -> WorkloadUsage:
    """Usage of each workload's container: at each step that of the replica that used most, each resource by itself.

    With `skip_startup` the first so many seconds after each start of a container are left out. Starts are seen in the
    samples, and where `started` knows that of a pod (by namespace and name), there.
    """
    groups = _ColumnGroups.from_usage(usage, owners)
    hidden = _mask_startup(usage, skip_startup, started or {})

    def highest(grid: Floats) -> Floats:
        answer = np.full((len(grid), len(groups.containers)), np.nan)
        for top in range(0, len(grid), _ROWS_PER_BLOCK):  # a copy of some rows at a time, not of all
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
    """Usage of each replica: as many columns a container as it ever had replicas at the same time."""
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
        # The samples of each step to the front: a replica that is gone makes room for the one that follows it.
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


@dataclass(frozen=True, slots=True)
class _ColumnGroups:
    """Which columns of pods' usage belong to which container of a workload."""

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
        """Where in `order` each group begins."""
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
        number = {name: place for place, name in enumerate(self.containers)}
        column = {name: place for place, name in enumerate(usage.containers)}
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
    """Where a sample is of a container that has just started."""
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
