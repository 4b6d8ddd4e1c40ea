"""The best that can be asked for without harm: the next interval's true maximum. No strategy can know it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from trimtab.sizing import Settings, Strategy, TargetRange, Targets
from trimtab.sizing.state import Array, Floats, Indices
from trimtab.usage.trace import Trace


class Oracle(Strategy[Settings]):
    """Knows the trace that is replayed."""

    name: ClassVar[str] = "oracle"
    settings_type: ClassVar[type[Settings]] = Settings

    def __init__(self, trace: Trace, *, update: float) -> None:
        super().__init__(trace.container_count, Settings())
        self._trace = trace
        self._rows_ahead = max(1, round(update / trace.step))

    def observe(self, t: float, cpu: Floats, memory: Floats) -> None:
        """Learn nothing: all is known."""

    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None:
        """Never happens to it."""

    def recommend(self, t: float) -> Targets:
        row = round((t - self._trace.start) / self._trace.step)
        cpu, memory = (
            np.fmax.reduce(usage[row : row + self._rows_ahead], axis=0, initial=np.nan)
            for usage in (self._trace.cpu, self._trace.memory)
        )
        return Targets(cpu=TargetRange(cpu, cpu, cpu), memory=TargetRange(memory, memory, memory))

    def arrays(self) -> dict[str, Array]:
        return {}

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        """There is nothing to take over."""
