"""Usage of many containers over time, as arrays; the input of a back-test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trace:
    """Samples on a regular time grid: one row per step, one column per container, NaN without a sample.

    `start` is the time of the first row in seconds; its time of day is the real one, so that daily patterns
    keep their hours.
    """

    names: tuple[str, ...]
    start: float
    step: float
    cpu: Floats
    """The CPU usage in cores."""
    memory: Floats
    """The memory usage in bytes."""

    @property
    def steps(self) -> int:
        return len(self.cpu)

    @property
    def container_count(self) -> int:
        return len(self.names)

    @property
    def sample_count(self) -> int:
        """Return the number of cells with a sample of at least one resource."""
        return int(np.count_nonzero(~(np.isnan(self.cpu) & np.isnan(self.memory))))

    def select_columns(self, columns: npt.NDArray[np.intp]) -> Trace:
        """Return a trace of the selected containers over the same time."""
        return Trace(
            names=tuple(self.names[column] for column in columns),
            start=self.start,
            step=self.step,
            cpu=np.ascontiguousarray(self.cpu[:, columns]),
            memory=np.ascontiguousarray(self.memory[:, columns]),
        )
