"""Usage over time of many containers, as arrays: what a back-test replays, wherever it came from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trace:
    """Samples on a regular grid of time: a row a step, a column a container; NaN where there is no sample.

    `start` is the time of the first row in seconds; its time of day is the day's, so that hours keep their meaning.
    """

    names: tuple[str, ...]
    start: float
    step: float
    cpu: Floats
    """Cores."""
    memory: Floats
    """Bytes."""

    @property
    def steps(self) -> int:
        return len(self.cpu)

    @property
    def container_count(self) -> int:
        return len(self.names)

    @property
    def sample_count(self) -> int:
        """How often any container was sampled, whether for one resource or for both."""
        return int(np.count_nonzero(~(np.isnan(self.cpu) & np.isnan(self.memory))))

    def select_columns(self, columns: npt.NDArray[np.intp]) -> Trace:
        """The same time for some of the containers."""
        return Trace(
            names=tuple(self.names[column] for column in columns),
            start=self.start,
            step=self.step,
            cpu=np.ascontiguousarray(self.cpu[:, columns]),
            memory=np.ascontiguousarray(self.memory[:, columns]),
        )
