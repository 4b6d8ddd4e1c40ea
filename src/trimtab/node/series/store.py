"""All series of the agent: bounded in number and length, and forgotten when nobody adds to them any more.

Series of the node and its tiers are kept for longer than those of pods, of which there are hundreds. Both lengths
follow what is to be reported. A longer window than there are cells for makes the cells longer, not more; then the last
minute is kept in cells as short as ever beside them, since what the agent decides must not depend on what it reports.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from trimtab.node.model import Metric, WindowStats
from trimtab.node.series.ring import Ring, compute_stats

MAX_SERIES = 16_000
"""More pods than a node can have, of two containers and five metrics each."""
MAX_NODE_CELLS = 1800
MAX_POD_CELLS = 300
MIN_SECONDS = 60.0
"""So much is kept in any case: the agent itself looks back so far, whatever is to be reported."""


@dataclass(frozen=True, slots=True)
class SeriesRetention:
    """For how many seconds samples are kept."""

    node: float = 1800.0
    pods: float = 300.0

    def plan_cells(self, subject: str, period: float) -> tuple[int, float]:
        """How many cells of which length a series has."""
        of_pod = subject.startswith("pod/")
        seconds = max(MIN_SECONDS, self.pods if of_pod else self.node)
        most = MAX_POD_CELLS if of_pod else MAX_NODE_CELLS
        step = max(period, seconds / most)
        return max(4, math.ceil(seconds / step)), step

    def build_ring(self, subject: str, period: float) -> Ring:
        """Return an empty ring for the samples of a subject."""
        cells, step = self.plan_cells(subject, period)
        is_coarse = step > period
        recent = Ring(math.ceil(MIN_SECONDS / period), period) if is_coarse else None
        return Ring(cells, step, period=period, recent=recent)


class SeriesStore:
    """Answers as `trimtab.node.model.MetricWindows` promises, at the time that it was last told."""

    def __init__(self, retention: SeriesRetention | None = None, *, now: float = 0.0) -> None:
        self.retention = retention or SeriesRetention()
        self.now = now
        self.rejected = 0
        """Samples of series that there was no room for."""
        self._rings: dict[str, dict[Metric, Ring]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, subject: str, metric: Metric, value: float, *, period: float) -> None:
        """A sample of now. `period` is how often there is one."""
        rings = self._rings.get(subject)
        if rings is None:
            rings = self._rings[subject] = {}
        ring = rings.get(metric)
        if ring is None:
            if self._size >= MAX_SERIES:
                self.rejected += 1
                return
            ring = rings[metric] = self.retention.build_ring(subject, period)
            self._size += 1
        ring.period = period
        ring.add(self.now, value)

    def latest(self, subject: str, metric: Metric) -> float | None:
        ring = self._ring(subject, metric)
        return None if ring is None else ring.last(self.now)

    def average(self, subject: str, metric: Metric, seconds: float) -> float | None:
        samples = self._samples(subject, metric, seconds)
        return None if samples is None else math.fsum(samples) / len(samples)

    def spread(self, subject: str, metric: Metric, seconds: float) -> WindowStats | None:
        samples = self._samples(subject, metric, seconds)
        return None if samples is None else compute_stats(samples)

    def sweep(self) -> None:
        """Forget series whose samples have all left their window."""
        for subject, rings in list(self._rings.items()):
            for metric in [metric for metric, ring in rings.items() if ring.is_idle(self.now)]:
                del rings[metric]
                self._size -= 1
            if not rings:
                del self._rings[subject]

    def set_retention(self, retention: SeriesRetention) -> None:
        """Keep samples for so long from now on."""
        self.retention = retention
        for subject, rings in self._rings.items():
            for metric, ring in rings.items():
                wanted = retention.build_ring(subject, ring.period)
                if _cell_layout(wanted) != _cell_layout(ring):
                    rings[metric] = ring.copy_into(wanted)

    def rings(self) -> Iterator[tuple[str, Metric, Ring]]:
        """All rings; of a series that has two, that of the last minute comes second."""
        for subject, rings in self._rings.items():
            for metric, ring in rings.items():
                yield subject, metric, ring
                if ring.recent is not None:
                    yield subject, metric, ring.recent

    def restore(self, subject: str, metric: Metric, ring: Ring) -> None:
        """A series as it was before a restart, until `keep` tells for how long now; one that there is already is kept."""
        rings = self._rings.setdefault(subject, {})
        there = rings.get(metric)
        if there is None and self._size < MAX_SERIES:
            rings[metric] = ring
            self._size += 1
        elif there is not None and there.recent is None and ring.step < there.step:
            there.recent, there.period = ring, ring.period

    def _ring(self, subject: str, metric: Metric) -> Ring | None:
        rings = self._rings.get(subject)
        return None if rings is None else rings.get(metric)

    def _samples(self, subject: str, metric: Metric, seconds: float) -> list[float] | None:
        ring = self._ring(subject, metric)
        return None if ring is None else ring.samples(seconds, self.now)


def _cell_layout(ring: Ring | None) -> tuple[object, ...]:
    return () if ring is None else (ring.cells, ring.step, *_cell_layout(ring.recent))
