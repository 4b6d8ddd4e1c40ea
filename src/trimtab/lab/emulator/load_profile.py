"""The load of a stress pod, period by period: one series of a workload, replayed in real time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trimtab.api.quantity import MIB
from trimtab.lab.workloads import GeneratedWorkload
from trimtab.usage.trace import Floats


class PodDemand(NamedTuple):
    """The load to generate: whole millicores and whole MiB."""

    milli: int
    mib: int

    @classmethod
    def from_amounts(cls, cores: float, held: float) -> PodDemand:
        return cls(round(cores * 1000), round(held / MIB))

    @property
    def cores(self) -> float:
        return self.milli / 1000

    @property
    def bytes(self) -> int:
        return self.mib * MIB


@dataclass(frozen=True, slots=True)
class LoadProfile:
    """One series; a step of it lasts a period."""

    cpu: Floats
    """Cores."""
    memory: Floats
    """Bytes."""
    step: float
    """Seconds of the workload's own time in a step."""
    start: float = 0.0

    @classmethod
    def from_workload(
        cls, workload: GeneratedWorkload, *, series: int = 0, scale: float = 1.0
    ) -> LoadProfile:
        """Build the profile from a series of a workload, `scale` times as large."""
        cpu, memory = workload.cpu[series] * scale, workload.memory[series] * scale
        return cls(np.array(cpu), np.array(memory), workload.step, workload.start)

    @property
    def periods(self) -> int:
        return len(self.cpu)

    def demand_at(self, period: int) -> PodDemand:
        """Return the load of a period; after the last period, the load of the last."""
        place = min(max(period, 0), self.periods - 1)
        return PodDemand.from_amounts(self.cpu[place], self.memory[place])

    def period_end(self, period: int) -> float:
        """Return the workload's own time at the end of a period, as a strategy sees it."""
        return self.start + (period + 1) * self.step
