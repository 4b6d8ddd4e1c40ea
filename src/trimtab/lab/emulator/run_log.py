"""The record of a stress run: load, usage, requests and harm of each period, and their summary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from trimtab.usage.trace import Floats


class PeriodRecord(NamedTuple):
    """One pod in one period. Cores, bytes; NaN where it is not known."""

    period: int
    pod: str
    wanted_cpu: float
    wanted_memory: float
    used_cpu: float
    used_memory: float
    cpu_request: float
    memory_request: float
    throttled: float
    """The share of the kernel's periods in which its limit held it back."""
    killed: bool
    """True if the container was OOM-killed."""


@dataclass(slots=True)
class RunLog:
    """All entries of a run."""

    entries: list[PeriodRecord] = field(default_factory=list)
    resizes: int = 0
    resize_errors: list[str] = field(default_factory=list)
    """The reasons why resizes were not made, in the cluster's words."""
    missed_updates: int = 0
    """The number of periods in which a pod could not be reached to set its load."""

    def column(self, name: str) -> Floats:
        return np.array([getattr(entry, name) for entry in self.entries], float)

    def summary(self) -> dict[str, float]:
        """Return shares of what was wanted, used or requested, over all pods and periods."""
        cpu, memory = (self._compute_unserved_and_slack(resource) for resource in ("cpu", "memory"))
        return {
            "periods": float(len({entry.period for entry in self.entries})),
            "cpu_wanted": _mean(self.column("wanted_cpu")),
            "cpu_used": _mean(self.column("used_cpu")),
            "cpu_unserved": cpu[0],
            "cpu_slack": cpu[1],
            "memory_wanted": _mean(self.column("wanted_memory")),
            "memory_used": _mean(self.column("used_memory")),
            "memory_slack": memory[1],
            "throttled": _mean(self.column("throttled")),
            "ooms": float(self.column("killed").sum()),
            "resizes": float(self.resizes),
            "unheard": float(self.missed_updates),
        }

    def _compute_unserved_and_slack(self, resource: str) -> tuple[float, float]:
        """Return the share of the wanted usage that was not served, and the share of the requests that was not used."""
        wanted, used = self.column(f"wanted_{resource}"), self.column(f"used_{resource}")
        request = self.column(f"{resource}_request")
        known = np.isfinite(used)
        return (
            _share(np.maximum(wanted - used, 0.0)[known].sum(), wanted[known].sum()),
            _share(np.maximum(request - used, 0.0)[known].sum(), request[known].sum()),
        )


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else float("nan")
