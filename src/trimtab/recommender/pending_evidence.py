"""Evidence from steps that are still incomplete.

It counts at once, but is not ingested because more samples may arrive. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Self

import msgspec
import numpy as np

from trimtab.recommender.cohort import LatestUsage
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.state import MAX_PLAUSIBLE_CPU, MAX_PLAUSIBLE_MEMORY
from trimtab.usage.aggregation import max_over_replicas
from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.trace import Floats
from trimtab.usage.usage import Usage, mask_implausible


@dataclass(frozen=True, slots=True)
class RecentUsage:
    """The usage of workload containers in the steps after the ingested ones."""

    columns: dict[WorkloadContainer, int] = field(default_factory=dict)
    """The column of each container in `cpu` and `memory`."""
    times: Floats = field(default_factory=lambda: np.empty(0))
    cpu: Floats = field(default_factory=lambda: np.empty((0, 0)))
    memory: Floats = field(default_factory=lambda: np.empty((0, 0)))

    @classmethod
    def from_usage(cls, usage: Usage, owners: PodOwnerIndex) -> Self:
        """Combine the usage of replicas and drop implausible samples."""
        found = max_over_replicas(usage, owners)
        columns = {name: column for column, name in enumerate(found.containers)}
        cpu = mask_implausible(found.cpu, maximum=MAX_PLAUSIBLE_CPU)
        return cls(columns, usage.times, cpu, mask_implausible(found.memory, maximum=MAX_PLAUSIBLE_MEMORY))

    def add_to(self, evidence: Evidence, name: WorkloadContainer, *, after: float) -> Evidence:
        """Return a container's evidence with the peaks and the last sample after a time, up to which it was ingested."""
        times, cpu, memory = self._samples_after(name, after)
        sampled = times[~(np.isnan(cpu) & np.isnan(memory))]
        if not sampled.size:
            return evidence
        # Only peaks and the last sample: counts and coverage wait until the step is ingested, or they would count twice.
        return msgspec.structs.replace(
            evidence,
            last_sample_at=max(evidence.last_sample_at, float(sampled[-1])),
            cpu_peak=_max_peak(evidence.cpu_peak, cpu * 1000),
            cpu_peak_week=_max_peak(evidence.cpu_peak_week, cpu * 1000),
            memory_peak=_max_peak(evidence.memory_peak, memory),
        )

    def latest_usage(self, name: WorkloadContainer, *, after: float) -> LatestUsage | None:
        """Return a container's latest usage after a time; None if it has no sample since then."""
        _, cpu, memory = self._samples_after(name, after)
        sampled = np.flatnonzero(~(np.isnan(cpu) & np.isnan(memory)))
        return LatestUsage(float(cpu[sampled[-1]]), float(memory[sampled[-1]])) if sampled.size else None

    def _samples_after(self, name: WorkloadContainer, after: float) -> tuple[Floats, Floats, Floats]:
        column = self.columns.get(name)
        if column is None:
            return np.empty(0), np.empty(0), np.empty(0)
        later = self.times > after
        return self.times[later], self.cpu[later, column], self.memory[later, column]


def _max_peak(known: int | None, found: Floats) -> int | None:
    highest = float(np.fmax.reduce(found, initial=np.nan))
    if math.isnan(highest):
        return known
    return max(known or 0, math.ceil(highest))
