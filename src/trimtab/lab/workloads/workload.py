"""Demand over time of many containers alike: what a generator makes, a simulation serves and a stress pod follows.

It is what containers want, not what they get: limits and neighbours are the simulator's and the kernel's affair. A row
is a series, unlike in a `Trace`, for here a series is taken out far more often than a moment is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.usage.trace import Floats, Trace

MONDAY = 4 * 86400.0
"""Midnight before a Monday, of the first week of all time: a workload's week begins with its working days."""


@dataclass(frozen=True, slots=True)
class GeneratedWorkload:
    """Series on one grid of time: arrays of [series, steps]."""

    type: str
    """The generator that made it."""
    step: float
    """Seconds from one sample to the next."""
    cpu: Floats
    """Cores."""
    memory: Floats
    """Bytes."""
    requests: Floats | None = None
    """Requests a second, where it is a service."""
    start: float = MONDAY
    settings: Mapping[str, Any] = field(default_factory=dict)
    """All of the generator's settings, as JSON has them."""
    seed: int = 0

    @property
    def series(self) -> int:
        return len(self.cpu)

    @property
    def steps(self) -> int:
        return len(self.cpu[0])

    @property
    def duration(self) -> float:
        """Return the duration in seconds."""
        return self.steps * self.step

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.type}-{number}" for number in range(self.series))

    def to_trace(self) -> Trace:
        """Return the workload as a recording, for a back-test."""
        return Trace(
            names=self.names,
            start=self.start,
            step=self.step,
            cpu=np.ascontiguousarray(self.cpu.T),
            memory=np.ascontiguousarray(self.memory.T),
        )
