"""The arrays of all containers of a simulated cluster; rows that are free are given out again, the last freed first."""

from __future__ import annotations

import numpy as np

from trimtab.kube.kinds.pods import Resources
from trimtab.lab.simulator.demand import Serials
from trimtab.lab.simulator.physics import BEST_EFFORT, UNSCHEDULED, Containers, Floats, Indices

_INITIAL_ROWS = 64


class ContainerArrays:
    """The containers of the physics, and further columns about each row."""

    def __init__(self) -> None:
        self.containers = Containers.empty(0)
        self.demand_column: Indices = np.zeros(0, np.int32)
        """The index of its demand; -1 for a free row."""
        self.workload: Indices = np.zeros(0, np.int32)
        self.serial: Serials = np.zeros(0, np.uint64)
        """A number that no other container ever had."""
        self.cpu_seconds: Floats = np.zeros(0)
        """The CPU time of one request, for containers of services."""
        self.cpu_demand: Floats = np.zeros(0)
        """The CPU demand of this step."""
        self.memory_demand: Floats = np.zeros(0)
        """The memory demand of this step."""
        self._free: list[int] = []
        self._next_serial = 0

    def __len__(self) -> int:
        return len(self.demand_column)

    def allocate(self, *, demand_column: int, workload: int, burst: float, cpu_seconds: float) -> int:
        """Return a row for a new container, which is on no node yet."""
        if not self._free:
            self._grow()
        row = self._free.pop()
        self.demand_column[row], self.workload[row], self.serial[row] = (
            demand_column,
            workload,
            self._next_serial,
        )
        self.cpu_seconds[row] = cpu_seconds
        self.containers.burst[row] = burst
        self._next_serial += 1
        return row

    def release(self, row: int) -> None:
        containers = self.containers
        containers.node[row] = UNSCHEDULED
        containers.runs_from[row] = -np.inf
        containers.backoff_count[row] = containers.restarts[row] = 0
        containers.cpu[row] = containers.throttled[row] = containers.memory[row] = 0.0
        # Otherwise the next container in this row would count the old demand, in the same step, as not served.
        self.cpu_demand[row] = self.memory_demand[row] = 0.0
        self.demand_column[row] = -1
        self._free.append(row)

    def set_resources(self, row: int, resources: Resources) -> None:
        """Set the resources of a container's cgroup; a missing request equals the limit, as the API server defaults it."""
        containers = self.containers
        cpu, memory = resources.cpu_limit, resources.memory_limit
        containers.cpu_request[row] = (resources.cpu_request or cpu or 0) / 1000
        containers.memory_request[row] = resources.memory_request or memory or 0
        containers.cpu_limit[row] = cpu / 1000 if cpu else np.inf
        containers.memory_limit[row] = memory or np.inf

    def _grow(self) -> None:
        old = len(self)
        more = max(old, _INITIAL_ROWS)
        fresh = Containers.empty(more)
        grown = (np.concatenate([left, right]) for left, right in zip(self.containers, fresh, strict=True))
        self.containers = Containers(*grown)
        self.containers.qos[old:] = BEST_EFFORT
        self.demand_column = np.concatenate([self.demand_column, np.full(more, -1, np.int32)])
        self.workload = np.concatenate([self.workload, np.zeros(more, np.int32)])
        self.serial = np.concatenate([self.serial, np.zeros(more, np.uint64)])
        self.cpu_seconds, self.cpu_demand, self.memory_demand = (
            np.concatenate([each, np.zeros(more)])
            for each in (self.cpu_seconds, self.cpu_demand, self.memory_demand)
        )
        self._free += range(old + more - 1, old - 1, -1)
