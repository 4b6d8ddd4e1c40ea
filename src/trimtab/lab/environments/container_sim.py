"""Simulate containers hour by hour with given requests: the core of all environments.

Each container is simulated by itself, on a node with capacity for everything. The simulator's physics decides what
happens to it; the observation is the record that strategies keep. An hour of all containers is one call of compiled
code. An OOM-killed container gets `oom_bump` times its memory at once, as the operator would do; every other change
waits for the next hour.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from trimtab.lab.environments.reward import (
    CPU_MISSING,
    CPU_OVER,
    CPU_REQUESTED,
    CPU_STEPS,
    CPU_UNDER,
    CPU_WANTED,
    MEMORY_OVER,
    MEMORY_REQUESTED,
    MEMORY_STEPS,
    OOMS,
    SUMS,
    THROTTLED,
)
from trimtab.lab.neural.actions import ActionRange, build_observation, cpu_action_range, memory_action_range
from trimtab.lab.neural.features import HourlyUsage, OpenHour, add_samples
from trimtab.lab.simulator import physics
from trimtab.sizing.state import MAX_PLAUSIBLE_CPU, MAX_PLAUSIBLE_MEMORY
from trimtab.usage.trace import Floats, Trace

HOUR = 3600.0
NO_OOM_HOURS = 1e6
"""Hours since an OOM that has not been."""


class RequestRules(NamedTuple):
    """The rules by which requests become the size that a container really has."""

    cpu_limit: float = np.inf
    """The CPU limit in multiples of the request; infinite for none."""
    oom_bump: float = 1.25
    """The memory of an OOM-killed container, in multiples of what it had."""
    minimum_change: float = 0.1
    """The least relative change of a request that is carried out."""
    burst: float = 0.3
    """The variation of demand between CFS periods, as a share of its mean; it decides how much a limit throttles."""


@njit(cache=True, error_model="numpy")
def simulate_hour(
    containers: physics.Containers,
    nodes: physics.Nodes,
    cpu: Floats,
    memory: Floats,
    start: float,
    step: float,
    oom_bump: float,
    cpu_filling: OpenHour,
    memory_filling: OpenHour,
    sums: Floats,
) -> None:
    """Simulate the rows of demand, one step each."""
    sums[:] = 0.0
    used, held = np.empty(cpu.shape[1]), np.empty(cpu.shape[1])
    for at in range(cpu.shape[0]):
        physics._step(containers, nodes, cpu[at], memory[at], start + at * step, step)  # noqa: SLF001 - the compiled form of `step`
        for row in range(used.size):
            wants, needs, total = cpu[at, row], memory[at, row], sums[row]
            used[row], held[row] = np.nan, np.nan
            if not np.isnan(wants):
                used[row] = containers.cpu[row]
                asked = containers.cpu_request[row]
                total[CPU_STEPS] += 1.0
                total[CPU_REQUESTED] += asked
                total[CPU_OVER] += max(asked - wants, 0.0)
                total[CPU_MISSING] += max(wants - asked, 0.0)
                total[CPU_UNDER] += wants > asked
                total[CPU_WANTED] += wants
                total[THROTTLED] += containers.throttled[row]
            if not np.isnan(needs):
                held[row] = containers.memory[row]
                total[MEMORY_STEPS] += 1.0
                total[MEMORY_REQUESTED] += containers.memory_limit[row]
                total[MEMORY_OVER] += max(containers.memory_limit[row] - needs, 0.0)
            if containers.killed[row] != 0:
                total[OOMS] += 1.0
                containers.memory_limit[row] *= oom_bump
                containers.memory_request[row] = containers.memory_limit[row]
        add_samples(used, MAX_PLAUSIBLE_CPU, cpu_filling)
        add_samples(held, MAX_PLAUSIBLE_MEMORY, memory_filling)


class ContainerSim:
    """Simulates the containers of one episode."""

    def __init__(self, demand: Trace, rules: RequestRules) -> None:
        self._demand, self._rules = demand, rules
        self._rows_per_hour = max(1, round(HOUR / demand.step))
        count = demand.container_count
        self._containers = physics.Containers.empty(count)
        self._containers.node[:] = 0
        self._containers.burst[:] = rules.burst
        self._nodes = physics.Nodes.from_capacity(np.array([np.inf]), np.array([np.inf]))
        self._cpu, self._memory = (
            HourlyUsage(count, most=MAX_PLAUSIBLE_CPU),
            HourlyUsage(count, most=MAX_PLAUSIBLE_MEMORY),
        )
        self._hours_since_oom = np.full(count, NO_OOM_HOURS)
        self.sums = np.zeros((count, SUMS))
        self.hour = 0

    @property
    def is_over(self) -> bool:
        """True if no whole hour of demand is left."""
        return (self.hour + 1) * self._rows_per_hour > self._demand.steps

    @property
    def time(self) -> float:
        """Return the seconds at the beginning of the present hour."""
        return self._demand.start + self.hour * self._rows_per_hour * self._demand.step

    @property
    def requests(self) -> tuple[Floats, Floats]:
        return self._containers.cpu_request, self._containers.memory_request

    @property
    def usage(self) -> tuple[Floats, Floats]:
        """Return the means of the last hour; 0 where there was no sample."""
        cpu, memory = (
            record.open_hour.total / np.maximum(record.open_hour.samples, 1)
            for record in (self._cpu, self._memory)
        )
        return cpu, memory

    def warm_up(self, hours: int) -> None:
        """Observe this many hours with unlimited capacity, then request the highest usage.

        A container without samples keeps that capacity until an agent can size it: otherwise it would be OOM-killed
        again and again for usage that nobody could know.
        """
        self._set_requests(
            np.full(len(self.sums), MAX_PLAUSIBLE_CPU), np.full(len(self.sums), MAX_PLAUSIBLE_MEMORY)
        )
        for _ in range(hours):
            self.run_hour()
        cpu, memory = (
            record.compute_features(self.hour - 1, self.time) for record in (self._cpu, self._memory)
        )
        self._set_requests(
            np.where(np.isnan(cpu.levels), MAX_PLAUSIBLE_CPU, np.maximum(cpu.peaks, 1e-3)),
            np.where(np.isnan(memory.levels), MAX_PLAUSIBLE_MEMORY, np.maximum(memory.peaks * 1.1, 2.0**20)),
        )
        self._hours_since_oom[:] = NO_OOM_HOURS

    def apply_requests(self, cpu: Floats, memory: Floats) -> npt.NDArray[np.int64]:
        """Apply requests where the change is worth it (NaN keeps the present one), and return the number of changes of
        each container.
        """
        changed = np.zeros(len(cpu), np.int64)
        asked = []
        for wanted, had in zip((cpu, memory), self.requests, strict=True):
            change = np.abs(wanted - had) > self._rules.minimum_change * had
            changed += change
            asked.append(np.where(change, wanted, had))
        self._set_requests(*asked)
        return changed

    def run_hour(self) -> None:
        """Simulate the next hour. The last one stays open until now, because an agent observes it as a strategy does."""
        if self.hour > 0:
            for record in (self._cpu, self._memory):
                record.close_hour(self.hour - 1, self.hour)
        first = self.hour * self._rows_per_hour
        simulate_hour(
            self._containers,
            self._nodes,
            self._demand.cpu[first : first + self._rows_per_hour],
            self._demand.memory[first : first + self._rows_per_hour],
            self.time,
            self._demand.step,
            self._rules.oom_bump,
            self._cpu.open_hour,
            self._memory.open_hour,
            self.sums,
        )
        self._hours_since_oom += 1.0
        self._hours_since_oom[self.sums[:, OOMS] > 0] = 0.0
        self.hour += 1

    def observe(self) -> tuple[Floats, tuple[ActionRange, ActionRange]]:
        """Return the agent's observation of each container, and the sizes between which it chooses."""
        shown, spans = [], []
        for record, span in ((self._cpu, cpu_action_range), (self._memory, memory_action_range)):
            levels, peaks, features = record.compute_features(self.hour - 1, self.time)
            shown.append(features)
            spans.append(span(levels, peaks))
        view = build_observation(
            cpu=shown[0],
            memory=shown[1],
            spans=(spans[0], spans[1]),
            requests=self.requests,
            hours_since_oom=self._hours_since_oom,
        )
        return view, (spans[0], spans[1])

    def _set_requests(self, cpu: Floats, memory: Floats) -> None:
        self._containers.cpu_request[:] = cpu
        self._containers.cpu_limit[:] = cpu * self._rules.cpu_limit
        self._containers.memory_request[:] = memory
        self._containers.memory_limit[:] = memory
