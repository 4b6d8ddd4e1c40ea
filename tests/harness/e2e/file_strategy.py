"""Provide a strategy that recommends what a file contains, for tests that need a known recommendation."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from trimtab.plugins import Settings
from trimtab.sizing.state import Array, Floats, Indices
from trimtab.sizing.strategy import Strategy, TargetRange, Targets


class FileStrategySettings(Settings):
    """The file that contains the recommendation."""

    file: str
    """JSON with the cores, or the bytes, that every container should have: {"cpu": 0.2}."""


class FileStrategy(Strategy[FileStrategySettings]):
    """Learns nothing."""

    name = "file"
    settings_type = FileStrategySettings

    def observe(self, t: float, cpu: Floats, memory: Floats) -> None: ...

    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None: ...

    def recommend(self, t: float) -> Targets:
        recommended = json.loads(Path(self.settings.file).read_text())

        def of(resource: str) -> TargetRange:
            amount = np.full(self.containers, recommended.get(resource, np.nan))
            return TargetRange(target=amount, lower=amount, upper=amount)

        return Targets(cpu=of("cpu"), memory=of("memory"))

    def arrays(self) -> dict[str, Array]:
        return {}

    def load_arrays(self, arrays: Mapping[str, Array]) -> None: ...
