"""The cost and the harm of sizes, counted while a back-test runs.

Each resource of each container has one row of sums; all scores are ratios of them. Money is at OpenCost's prices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from trimtab.api.quantity import GIB
from trimtab.prices import CPU_HOUR, GIB_HOUR, MONTH_HOURS
from trimtab.usage.trace import Floats

OVER, REQUEST, EXCEEDED, SAMPLES, MISSING, USE, CHANGES = range(7)
"""The sums: unused request, request, samples over the request and their number, use over it, use, changes."""
SUMS = 7


@njit(cache=True)
def accumulate(usage: Floats, request: Floats, sums: Floats) -> None:
    """Add a stretch of time (a row a step) in which the requests stayed; NaN: not sized, so not counted."""
    for step in range(usage.shape[0]):
        for container in range(usage.shape[1]):
            use, asked = usage[step, container], request[container]
            if np.isnan(use) or np.isnan(asked):
                continue
            row = sums[container]
            row[REQUEST] += asked
            row[SAMPLES] += 1
            row[USE] += use
            if use > asked:
                row[EXCEEDED] += 1
                row[MISSING] += use - asked
            else:
                row[OVER] += asked - use


def _share(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one strategy: arrays with one element for each container that was sized at all."""

    containers: tuple[str, ...]
    cpu_slack: Floats
    """Σ max(request - use, 0) / Σ request."""
    cpu_under: Floats
    """Share of time in which use was over the request."""
    cpu_deficit: Floats
    """Σ max(use - request, 0) / Σ use."""
    memory_slack: Floats
    ooms: Floats
    """OOMs a day."""
    changes: Floats
    """Changes of more than 5 % of the CPU or the memory request, a day."""
    dollars: Floats
    """Return the monthly cost of the requests."""
    sums: tuple[Floats, Floats]
    """The counts behind all this, of CPU and of memory."""

    @classmethod
    def from_sums(cls, names: tuple[str, ...], *, cpu: Floats, memory: Floats, days: Floats) -> Scores:
        """Compute the scores from the sums, and from the days in which each container could be sized."""
        sized = (cpu[:, SAMPLES] > 0) | (memory[:, SAMPLES] > 0)
        cpu, memory, days = cpu[sized], memory[sized], days[sized]
        no_cpu, no_memory = cpu[:, SAMPLES] == 0, memory[:, SAMPLES] == 0
        return cls(
            containers=tuple(name for name, is_sized in zip(names, sized, strict=True) if is_sized),
            cpu_slack=np.where(no_cpu, np.nan, _share(cpu[:, OVER], cpu[:, REQUEST])),
            cpu_under=np.where(no_cpu, np.nan, _share(cpu[:, EXCEEDED], cpu[:, SAMPLES])),
            cpu_deficit=np.where(no_cpu, np.nan, _share(cpu[:, MISSING], cpu[:, USE])),
            memory_slack=np.where(no_memory, np.nan, _share(memory[:, OVER], memory[:, REQUEST])),
            ooms=np.where(no_memory, np.nan, _share(memory[:, EXCEEDED], days)),
            changes=_share(cpu[:, CHANGES] + memory[:, CHANGES], days),
            dollars=MONTH_HOURS
            * (
                CPU_HOUR * _share(cpu[:, REQUEST], cpu[:, SAMPLES])
                + GIB_HOUR * _share(memory[:, REQUEST], memory[:, SAMPLES]) / GIB
            ),
            sums=(cpu, memory),
        )

    def summary(self) -> dict[str, float]:
        """Means over containers, then the fleet as one (pooled), then the container at the 90th percentile."""
        cpu, memory = (sums.sum(axis=0) for sums in self.sums)
        return {
            "containers": len(self.containers),
            "cpu_slack": _mean(self.cpu_slack),
            "cpu_under": _mean(self.cpu_under),
            "cpu_deficit": _mean(self.cpu_deficit),
            "memory_slack": _mean(self.memory_slack),
            "ooms_day": _mean(self.ooms),
            "oom_share": _mean(np.where(np.isnan(self.ooms), np.nan, self.ooms > 0)),
            "changes_day": _mean(self.changes),
            "dollars_month": float(self.dollars.sum()) if self.containers else float("nan"),
            "cpu_slack_pooled": _ratio(cpu[OVER], cpu[REQUEST]),
            "cpu_under_pooled": _ratio(cpu[EXCEEDED], cpu[SAMPLES]),
            "cpu_deficit_pooled": _ratio(cpu[MISSING], cpu[USE]),
            "memory_slack_pooled": _ratio(memory[OVER], memory[REQUEST]),
            "cpu_under_p90": _p90(self.cpu_under),
            "cpu_deficit_p90": _p90(self.cpu_deficit),
        }


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _p90(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.quantile(known, 0.9)) if len(known) else float("nan")


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else float("nan")
