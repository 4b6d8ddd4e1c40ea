"""Usage of a simulated cluster, as a source that the operator reads: each step's samples, kept for a while.

It knows what a good Prometheus knows: CPU as a mean, memory as the highest, throttling and kills. A container that did
not run has no sample.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from trimtab.lab.simulator.physics import NOT_KILLED, UNSCHEDULED, Floats
from trimtab.lab.simulator.world import SimulatedWorld
from trimtab.plugins import Settings
from trimtab.usage.source import Capabilities, Cost, Progress, Source, SourceHealth, UsageQuery
from trimtab.usage.usage import Oom, PodContainer, Usage


class SimulatedUsageSettings(Settings):
    """There is nothing to set."""


class _Sample(NamedTuple):
    """One step: of each container that ran, its name, CPU, memory and throttled share."""

    at: float
    names: tuple[PodContainer, ...]
    cpu: Floats
    memory: Floats
    throttled: Floats
    killed: tuple[PodContainer, ...]


class SimulatedUsageSource(Source[SimulatedUsageSettings]):
    """The usage of a world in the last seconds, as many as `retention`."""

    name = "simulation"
    settings_type = SimulatedUsageSettings
    capabilities = Capabilities(history=True, throttling=True, ooms=True, atomic_steps=True)

    def __init__(self, world: SimulatedWorld, *, retention: float) -> None:
        super().__init__(SimulatedUsageSettings())
        self._world = world
        self._retention = retention
        self._samples: deque[_Sample] = deque()

    def record_step(self) -> None:
        """Record the usage of the last step."""
        containers, rows = self._world.container_arrays.containers, self._world.container_arrays
        ran = (containers.node != UNSCHEDULED) & (rows.demand_column >= 0)
        ran &= (containers.memory > 0) | (containers.cpu > 0)
        found = np.flatnonzero(ran)
        names = tuple(self._find_container_name(row) for row in found.tolist())
        killed = tuple(
            self._find_container_name(row)
            for row in np.flatnonzero(ran & (containers.killed != NOT_KILLED)).tolist()
        )
        self._samples.append(
            _Sample(
                self._world.now,
                names,
                containers.cpu[found],
                containers.memory[found],
                containers.throttled[found],
                killed,
            )
        )
        while self._samples[0].at <= self._world.now - self._retention:
            self._samples.popleft()

    def _find_container_name(self, row: int) -> PodContainer:
        pod, place = self._world.find_container(row)
        return PodContainer(pod.namespace, pod.name, pod.containers[place].name)

    async def check(self) -> SourceHealth:
        return SourceHealth(ok=True, detail=f"{len(self._samples)} steps are kept")

    async def estimate_cost(self, query: UsageQuery) -> Cost:
        return Cost(queries=1, series=0, samples=query.steps, bytes=0)

    async def read(self, query: UsageQuery, *, progress: Progress | None = None) -> Usage:
        del progress  # it takes no time
        within = [sample for sample in self._samples if query.start - query.step < sample.at < query.end]
        columns = {name: place for place, name in enumerate(dict.fromkeys(_select_containers(within, query)))}
        shape = (query.steps, len(columns))
        cpu, memory, throttled = (np.full(shape, np.nan) for _ in range(3))
        counts = np.zeros(shape)
        for sample in within:
            # A row covers the step that ends at its time.
            row = int(np.ceil((sample.at - query.start) / query.step - 1e-6))
            if not 0 <= row < query.steps:
                continue
            own = [place for place, name in enumerate(sample.names) if name in columns]
            places = [columns[sample.names[place]] for place in own]
            known = counts[row, places]
            for grid, values in ((cpu, sample.cpu[own]), (throttled, sample.throttled[own])):
                before = np.where(known > 0, grid[row, places], 0.0)
                grid[row, places] = (before * known + values) / (known + 1)
            memory[row, places] = np.fmax(memory[row, places], sample.memory[own])
            counts[row, places] += 1
        return Usage(
            containers=tuple(columns),
            start=query.start,
            step=query.step,
            cpu=cpu,
            memory=memory,
            throttled=throttled,
            ooms=tuple(
                Oom(sample.at, name) for sample in within for name in sample.killed if name in columns
            ),
        )


def _select_containers(samples: list[_Sample], query: UsageQuery) -> list[PodContainer]:
    return [
        name
        for sample in samples
        for name in sample.names
        if query.namespaces is None or name.namespace in query.namespaces
    ]
