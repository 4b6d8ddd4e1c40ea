"""The arrays of all containers of a simulated cluster; rows that are free are given out again, the last freed first."""

from __future__ import annotations

import numpy as np

from trimtab.kube.kinds.pods import Resources
from trimtab.lab.simulator.demand import Serials
from trimtab.lab.simulator.physics import BEST_EFFORT, NOWHERE, Containers, Floats, Indices

_FEW = 64


class Rows:
    """Containers as physics has them, and what else is known of each row."""

    def __init__(self) -> None:
        self.containers = Containers.empty(0)
        self.column: Indices = np.zeros(0, np.int32)
        """Of the demand; -1 of a free row."""
        self.workload: Indices = np.zeros(0, np.int32)
        self.serial: Serials = np.zeros(0, np.uint64)
        """A number that no other container ever had."""
        self.cpu_seconds: Floats = np.zeros(0)
        """CPU time of a request, where it answers any."""
        self.cpu: Floats = np.zeros(0)
        """Wanted in this step,"""
        self.memory: Floats = np.zeros(0)
        """likewise."""
        self._free: list[int] = []
        self._given = 0

    def __len__(self) -> int:
        return len(self.column)

    def take(self, *, column: int, workload: int, burst: float, cpu_seconds: float) -> int:
        """A row for a new container, which stands nowhere yet."""
        if not self._free:
            self._grow()
        row = self._free.pop()
        self.column[row], self.workload[row], self.serial[row] = column, workload, self._given
        self.cpu_seconds[row] = cpu_seconds
        self.containers.burst[row] = burst
        self._given += 1
        return row

    def give_back(self, row: int) -> None:
        containers = self.containers
        containers.node[row] = NOWHERE
        containers.resumes[row] = -np.inf
        containers.crashes[row] = containers.restarts[row] = 0
        containers.cpu[row] = containers.throttled[row] = containers.memory[row] = 0.0
        # Or whoever comes next, in the same step, would seem to have wanted it, and not had it.
        self.cpu[row] = self.memory[row] = 0.0
        self.column[row] = -1
        self._free.append(row)

    def resize(self, row: int, resources: Resources) -> None:
        """What its cgroup has from now on; a request that is not stated is its limit, as the API server has it."""
        containers = self.containers
        cpu, memory = resources.cpu_limit, resources.memory_limit
        containers.cpu_request[row] = (resources.cpu_request or cpu or 0) / 1000
        containers.memory_request[row] = resources.memory_request or memory or 0
        containers.cpu_limit[row] = cpu / 1000 if cpu else np.inf
        containers.memory_limit[row] = memory or np.inf

    def _grow(self) -> None:
        old = len(self)
        more = max(old, _FEW)
        fresh = Containers.empty(more)
        grown = (np.concatenate([left, right]) for left, right in zip(self.containers, fresh, strict=True))
        self.containers = Containers(*grown)
        self.containers.qos[old:] = BEST_EFFORT
        self.column = np.concatenate([self.column, np.full(more, -1, np.int32)])
        self.workload = np.concatenate([self.workload, np.zeros(more, np.int32)])
        self.serial = np.concatenate([self.serial, np.zeros(more, np.uint64)])
        self.cpu_seconds, self.cpu, self.memory = (
            np.concatenate([each, np.zeros(more)]) for each in (self.cpu_seconds, self.cpu, self.memory)
        )
        self._free += range(old + more - 1, old - 1, -1)
