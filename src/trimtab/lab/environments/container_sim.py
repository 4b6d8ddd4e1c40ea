"""Containers that live through demand hour by hour with the requests that they are given: the core of all environments.

Each container stands alone: on a node of its own, so to speak, that has room for everything. What happens to it is the
simulator's physics; what is seen of it is the record that strategies keep. An hour of all containers is one call of
compiled code. A container that was killed for memory gets `oom_bump` times what it had at once, as the operator
would; everything else waits for the next hour.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from trimtab.lab.environments.reward import (
    CPU_ASKED,
    CPU_MISSING,
    CPU_OVER,
    CPU_STEPS,
    CPU_UNDER,
    CPU_WANTED,
    MEMORY_ASKED,
    MEMORY_OVER,
    MEMORY_STEPS,
    OOMS,
    SUMS,
    THROTTLED,
)
from trimtab.lab.neural.actions import Span, cpu_span, memory_span, seen
from trimtab.lab.neural.features import Filling, Record, add
from trimtab.lab.simulator import physics
from trimtab.sizing.stats.plausibility import CPU_MOST, MEMORY_MOST
from trimtab.usage.trace import Floats, Trace

HOUR = 3600.0
NEVER = 1e6
"""Hours since an OOM that has not been."""


class Rules(NamedTuple):
    """How requests become what a container really has."""

    cpu_limit: float = np.inf
    """The CPU limit in multiples of the request; infinite for none."""
    oom_bump: float = 1.25
    """What a killed container gets at once, in multiples of what it had."""
    minimum_change: float = 0.1
    """The least relative change of a request that is carried out."""
    burst: float = 0.3
    """How much demand differs between the kernel's periods, as a share of its mean: decides who is throttled."""


@njit(cache=True, error_model="numpy")
def live(
    containers: physics.Containers,
    nodes: physics.Nodes,
    cpu: Floats,
    memory: Floats,
    start: float,
    step: float,
    oom_bump: float,
    cpu_filling: Filling,
    memory_filling: Filling,
    sums: Floats,
) -> None:
    """Let the rows of demand pass, a step each."""
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
                total[CPU_ASKED] += asked
                total[CPU_OVER] += max(asked - wants, 0.0)
                total[CPU_MISSING] += max(wants - asked, 0.0)
                total[CPU_UNDER] += wants > asked
                total[CPU_WANTED] += wants
                total[THROTTLED] += containers.throttled[row]
            if not np.isnan(needs):
                held[row] = containers.memory[row]
                total[MEMORY_STEPS] += 1.0
                total[MEMORY_ASKED] += containers.memory_limit[row]
                total[MEMORY_OVER] += max(containers.memory_limit[row] - needs, 0.0)
            if containers.killed[row] != 0:
                total[OOMS] += 1.0
                containers.memory_limit[row] *= oom_bump
                containers.memory_request[row] = containers.memory_limit[row]
        add(used, CPU_MOST, cpu_filling)
        add(held, MEMORY_MOST, memory_filling)


class Fleet:
    """So many containers in the demand of one episode."""

    def __init__(self, demand: Trace, rules: Rules) -> None:
        self._demand, self._rules = demand, rules
        self._an_hour = max(1, round(HOUR / demand.step))
        many = demand.containers
        self._containers = physics.Containers.empty(many)
        self._containers.node[:] = 0
        self._containers.burst[:] = rules.burst
        self._nodes = physics.Nodes.of(np.array([np.inf]), np.array([np.inf]))
        self._cpu, self._memory = Record(many, most=CPU_MOST), Record(many, most=MEMORY_MOST)
        self._since_oom = np.full(many, NEVER)
        self.sums = np.zeros((many, SUMS))
        self.hour = 0

    @property
    def over(self) -> bool:
        """Whether no whole hour of demand is left."""
        return (self.hour + 1) * self._an_hour > self._demand.steps

    @property
    def time(self) -> float:
        """Seconds, at the beginning of the present hour."""
        return self._demand.start + self.hour * self._an_hour * self._demand.step

    @property
    def requests(self) -> tuple[Floats, Floats]:
        return self._containers.cpu_request, self._containers.memory_request

    @property
    def usage(self) -> tuple[Floats, Floats]:
        """The means of the last hour; 0 where there was no sample."""
        cpu, memory = (
            record.filling.total / np.maximum(record.filling.samples, 1)
            for record in (self._cpu, self._memory)
        )
        return cpu, memory

    def warm_up(self, hours: int) -> None:
        """Watch for so many hours while there is room for everything, then request what was highest.

        Whoever has not been seen yet keeps that room until an agent can say something of it: else it would be killed
        for what nobody could know, again and again.
        """
        self._ask(np.full(len(self.sums), CPU_MOST), np.full(len(self.sums), MEMORY_MOST))
        for _ in range(hours):
            self.pass_hour()
        cpu, memory = (record.show(self.hour - 1, self.time) for record in (self._cpu, self._memory))
        self._ask(
            np.where(np.isnan(cpu.levels), CPU_MOST, np.maximum(cpu.peaks, 1e-3)),
            np.where(np.isnan(memory.levels), MEMORY_MOST, np.maximum(memory.peaks * 1.1, 2.0**20)),
        )
        self._since_oom[:] = NEVER

    def apply(self, cpu: Floats, memory: Floats) -> npt.NDArray[np.int64]:
        """Carry out such requests where the change is worth it (NaN: leave as is): how many changes each container had."""
        changed = np.zeros(len(cpu), np.int64)
        asked = []
        for wanted, had in zip((cpu, memory), self.requests, strict=True):
            change = np.abs(wanted - had) > self._rules.minimum_change * had
            changed += change
            asked.append(np.where(change, wanted, had))
        self._ask(*asked)
        return changed

    def pass_hour(self) -> None:
        """Live through the coming hour. The one before stays open until now, for an agent is shown it as a strategy is."""
        if self.hour > 0:
            for record in (self._cpu, self._memory):
                record.close(self.hour - 1, self.hour)
        first = self.hour * self._an_hour
        live(
            self._containers,
            self._nodes,
            self._demand.cpu[first : first + self._an_hour],
            self._demand.memory[first : first + self._an_hour],
            self.time,
            self._demand.step,
            self._rules.oom_bump,
            self._cpu.filling,
            self._memory.filling,
            self.sums,
        )
        self._since_oom += 1.0
        self._since_oom[self.sums[:, OOMS] > 0] = 0.0
        self.hour += 1

    def look(self) -> tuple[Floats, tuple[Span, Span]]:
        """What an agent sees of each container, and between which sizes it chooses."""
        shown, spans = [], []
        for record, span in ((self._cpu, cpu_span), (self._memory, memory_span)):
            levels, peaks, features = record.show(self.hour - 1, self.time)
            shown.append(features)
            spans.append(span(levels, peaks))
        view = seen(
            cpu=shown[0],
            memory=shown[1],
            spans=(spans[0], spans[1]),
            requests=self.requests,
            hours_since_oom=self._since_oom,
        )
        return view, (spans[0], spans[1])

    def _ask(self, cpu: Floats, memory: Floats) -> None:
        self._containers.cpu_request[:] = cpu
        self._containers.cpu_limit[:] = cpu * self._rules.cpu_limit
        self._containers.memory_request[:] = memory
        self._containers.memory_limit[:] = memory
