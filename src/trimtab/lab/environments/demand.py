"""The demand of an episode's containers: drawn by a generator, or cut out of a recording.

An episode's demand is a `Trace` of so many hours, a column for each container. The same chance gives the same demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from trimtab.errors import TrimtabError
from trimtab.lab.workloads import GENERATORS, generate
from trimtab.usage.trace import Trace

HOUR = 3600.0
DEFAULT_GENERATORS = ("diurnal_web", "batch", "memory_leak", "step", "sinusoidal", "low_high")
"""Generators that an environment draws from when nothing else is asked."""


NOISE_RANGE = (0.02, 0.4)


class DemandSource(Protocol):
    """A source of demand for episodes."""

    def sample(self, rng: np.random.Generator, *, containers: int, hours: int) -> Trace:
        """Return the demand of this many containers over this many hours."""


@dataclass(frozen=True, slots=True)
class GeneratedDemand:
    """Demand drawn by generators, with an equal share of the containers each; a single container is of a random one.

    How noisy they are differs from episode to episode, for those that have such a setting.
    """

    types: Sequence[str] = DEFAULT_GENERATORS
    step: float = 300.0

    def sample(self, rng: np.random.Generator, *, containers: int, hours: int) -> Trace:
        kinds = rng.permutation(np.resize(np.arange(len(self.types)), max(containers, len(self.types))))
        kinds = kinds[:containers]
        cpu, memory = np.empty((2, round(hours * HOUR / self.step), containers))
        start = 0.0
        for number, name in enumerate(self.types):
            columns = np.flatnonzero(kinds == number)
            if columns.size:
                made = generate(
                    name,
                    count=columns.size,
                    seed=int(rng.integers(2**31)),
                    step=self.step,
                    duration=hours * HOUR,
                    **_draw_settings(name, rng),
                )
                cpu[:, columns], memory[:, columns], start = made.cpu.T, made.memory.T, made.start
        return Trace(
            names=tuple(self.types[kind] for kind in kinds),
            start=start,
            step=self.step,
            cpu=cpu,
            memory=memory,
        )


def _draw_settings(name: str, rng: np.random.Generator) -> dict[str, float]:
    known = GENERATORS.load_type(name).settings_type.model_fields
    drawn = {"noise": float(np.exp(rng.uniform(*np.log(NOISE_RANGE)))), "spread": 1.0}
    return {key: value for key, value in drawn.items() if key in known}


@dataclass(frozen=True, slots=True)
class RecordedDemand:
    """Demand cut out of a recording where it has samples; a recording that is too short repeats from its start.

    All containers of an episode begin at the same hour, from which on each of them has samples in at least half as many hours
    as the best stretch of the recording that is so long.
    """

    trace: Trace
    _sampled: npt.NDArray[np.bool_] = field(init=False, repr=False, compare=False)
    """True for each hour of each container that has a sample."""

    def __post_init__(self) -> None:
        trace, an_hour = self.trace, self._rows_per_hour
        known = ~(np.isnan(trace.cpu) & np.isnan(trace.memory))
        begins = np.arange(0, trace.steps, an_hour)
        sampled = np.logical_or.reduceat(known, begins, axis=0) if known.size else known
        object.__setattr__(self, "_sampled", sampled)

    def sample(self, rng: np.random.Generator, *, containers: int, hours: int) -> Trace:
        enough = self._find_starts(hours)
        place = int(rng.choice(np.flatnonzero(enough)))
        hour = place // self.trace.container_count
        columns = rng.choice(np.flatnonzero(enough[hour]), size=containers)
        first, steps = hour * self._rows_per_hour, hours * self._rows_per_hour
        rows = (first + np.arange(steps)) % self.trace.steps
        return Trace(
            names=tuple(self.trace.names[column] for column in columns),
            start=self.trace.start + first * self.trace.step,
            step=self.trace.step,
            cpu=self.trace.cpu[np.ix_(rows, columns)],
            memory=self.trace.memory[np.ix_(rows, columns)],
        )

    @property
    def _rows_per_hour(self) -> int:
        return max(1, round(HOUR / self.trace.step))

    def _find_starts(self, hours: int) -> npt.NDArray[np.bool_]:
        """Return from which hours (rows) on which containers (columns) have enough samples for an episode."""
        if not self._sampled.any():
            raise TrimtabError("demand: the recording has no samples")
        count = len(self._sampled)
        latest = max(0, self.trace.steps - hours * self._rows_per_hour) // self._rows_per_hour
        # One that is too short is laid end to end, as its rows are.
        laid = self._sampled[np.arange(latest + hours) % count]
        sums = np.concatenate([np.zeros((1, laid.shape[1]), np.int64), np.cumsum(laid, axis=0)])
        covered = sums[hours:] - sums[:-hours]
        places: npt.NDArray[np.bool_] = covered >= covered.max() / 2
        return places


@dataclass(frozen=True, slots=True)
class MixedDemand:
    """Demand of each episode from one of several sources, chosen at random."""

    sources: Sequence[DemandSource]
    weights: Sequence[float] = field(default=())

    def sample(self, rng: np.random.Generator, *, containers: int, hours: int) -> Trace:
        weights = np.array(self.weights or [1.0] * len(self.sources))
        which = int(rng.choice(len(self.sources), p=weights / weights.sum()))
        return self.sources[which].sample(rng, containers=containers, hours=hours)
