"""Evidence of steps that are not complete yet: it counts at once, but is not learned, for more samples may come.

Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Self

import msgspec
import numpy as np

from trimtab.recommender.cohort import Used
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.stats.plausibility import CPU_MOST, MEMORY_MOST
from trimtab.usage.aggregation import merged
from trimtab.usage.pod_ownership import Owners, WorkloadContainer
from trimtab.usage.trace import Floats
from trimtab.usage.usage import Usage, plausible


@dataclass(frozen=True, slots=True)
class Recent:
    """What containers of workloads used in the steps after those that were learned from."""

    columns: dict[WorkloadContainer, int] = field(default_factory=dict)
    times: Floats = field(default_factory=lambda: np.empty(0))
    cpu: Floats = field(default_factory=lambda: np.empty((0, 0)))
    memory: Floats = field(default_factory=lambda: np.empty((0, 0)))

    @classmethod
    def of(cls, usage: Usage, owners: Owners) -> Self:
        found = merged(usage, owners)
        columns = {name: place for place, name in enumerate(found.containers)}
        cpu = plausible(found.cpu, most=CPU_MOST)
        return cls(columns, usage.times, cpu, plausible(found.memory, most=MEMORY_MOST))

    def added_to(self, evidence: Evidence, name: WorkloadContainer, *, after: float) -> Evidence:
        """Return the evidence of a container with its peaks and its last sample after a time, up to which it was learned."""
        times, cpu, memory = self._steps_of(name, after)
        sampled = times[~(np.isnan(cpu) & np.isnan(memory))]
        if not sampled.size:
            return evidence
        return msgspec.structs.replace(
            evidence,
            last=max(evidence.last, float(sampled[-1])),
            cpu_peak=_highest(evidence.cpu_peak, cpu * 1000),
            cpu_peak_week=_highest(evidence.cpu_peak_week, cpu * 1000),
            memory_peak=_highest(evidence.memory_peak, memory),
        )

    def used(self, name: WorkloadContainer, *, after: float) -> Used | None:
        """Return what a container used when it was last sampled after a time; None where it was not."""
        _, cpu, memory = self._steps_of(name, after)
        sampled = np.flatnonzero(~(np.isnan(cpu) & np.isnan(memory)))
        return Used(float(cpu[sampled[-1]]), float(memory[sampled[-1]])) if sampled.size else None

    def _steps_of(self, name: WorkloadContainer, after: float) -> tuple[Floats, Floats, Floats]:
        column = self.columns.get(name)
        if column is None:
            return np.empty(0), np.empty(0), np.empty(0)
        later = self.times > after
        return self.times[later], self.cpu[later, column], self.memory[later, column]


def _highest(known: int | None, found: Floats) -> int | None:
    highest = float(np.fmax.reduce(found, initial=np.nan))
    if math.isnan(highest):
        return known
    return max(known or 0, math.ceil(highest))
