"""The evidence arrays of the first version, without kills by size and a week of peaks, read so that an
upgrade loses nothing.

With a source without history, such as metrics-server, the evidence could not be collected again.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from trimtab.plugins import Settings
from trimtab.sizing.arrays import Array
from trimtab.sizing.state.array_state import ArrayState
from trimtab.sizing.stats.window import RollingMaxima

KILLS = 8
SLICES = 12


class LegacyEvidenceSettings(Settings):
    """The settings of the first version's tracker."""

    window: float = Field(default=86400.0, ge=1)
    """Seconds in which peaks were the highest."""


class LegacyEvidenceTracker(ArrayState[LegacyEvidenceSettings]):
    """The arrays of the first version."""

    name = "witness"

    def __init__(self, containers: int, settings: LegacyEvidenceSettings) -> None:
        super().__init__(containers, settings)
        self.cpu = RollingMaxima(containers, seconds=settings.window, slices=SLICES)
        self.memory = RollingMaxima(containers, seconds=settings.window, slices=SLICES)
        self.counters: dict[str, Array] = {
            "samples": np.zeros(containers, np.int64),
            "due": np.zeros(containers, np.int64),
            "ran": np.zeros(containers),
            "first": np.full(containers, np.nan),
            "last": np.full(containers, np.nan),
            "throttled": np.full(containers, np.nan),
            "throttled_at": np.full(containers, np.nan),
            "killed_at": np.full((containers, KILLS), -np.inf),
            "killed_with": np.zeros((containers, KILLS)),
        }

    def arrays(self) -> dict[str, Array]:
        return self.counters | self.cpu.arrays("cpu.") | self.memory.arrays("memory.")

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        self.counters = {name: arrays[name] for name in self.counters}
        self.cpu.load_arrays("cpu.", arrays)
        self.memory.load_arrays("memory.", arrays)
