"""All series of the agent, bounded in number and length, and dropped when they get no more samples.

Series of the node and its tiers are kept longer than those of pods, which are hundreds. Both lengths follow
the reports. A window longer than the number of cells makes cells longer; the last minute is then also kept in
short cells, so that decisions do not depend on the report settings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from trimtab.node.model import Metric, WindowStats
from trimtab.node.series.ring import Ring, compute_stats

MAX_SERIES = 16_000
"""The maximum number of series: more pods than a node can have, with two containers and five metrics each."""
MAX_NODE_CELLS = 1800
MAX_POD_CELLS = 300
MIN_SECONDS = 60.0
"""The minimum seconds to keep, because strategies look back this far."""


@dataclass(frozen=True, slots=True)
class SeriesRetention:
    """The seconds for which samples are kept."""

    node: float = 1800.0
    pods: float = 300.0

    def plan_cells(self, subject: str, period: float) -> tuple[int, float]:
        """Return the number and length of a series' cells."""
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
    """Implements `trimtab.node.model.MetricWindows` at the time `now`."""

    def __init__(self, retention: SeriesRetention | None = None, *, now: float = 0.0) -> None:
        self.retention = retention or SeriesRetention()
        self.now = now
        self.rejected = 0
        """The samples of series beyond the maximum number."""
        self._rings: dict[str, dict[Metric, Ring]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, subject: str, metric: Metric, value: float, *, period: float) -> None:
        """Add a sample at the current time; `period` is the seconds between samples."""
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
        """Drop series whose samples are all older than their window."""
        for subject, rings in list(self._rings.items()):
            for metric in [metric for metric, ring in rings.items() if ring.is_idle(self.now)]:
                del rings[metric]
                self._size -= 1
            if not rings:
                del self._rings[subject]

    def set_retention(self, retention: SeriesRetention) -> None:
        """Set the retention from now on."""
        self.retention = retention
        for subject, rings in self._rings.items():
            for metric, ring in rings.items():
                wanted = retention.build_ring(subject, ring.period)
                if _cell_layout(wanted) != _cell_layout(ring):
                    rings[metric] = ring.copy_into(wanted)

    def rings(self) -> Iterator[tuple[str, Metric, Ring]]:
        """Yield all rings; the short ring of the last minute follows its series' ring."""
        for subject, rings in self._rings.items():
            for metric, ring in rings.items():
                yield subject, metric, ring
                if ring.recent is not None:
                    yield subject, metric, ring.recent

    def restore(self, subject: str, metric: Metric, ring: Ring) -> None:
        """Restore a series from before a restart, until `set_retention`; an existing one is kept."""
        rings = self._rings.setdefault(subject, {})
        existing = rings.get(metric)
        if existing is None and self._size < MAX_SERIES:
            rings[metric] = ring
            self._size += 1
        elif existing is not None and existing.recent is None and ring.step < existing.step:
            existing.recent, existing.period = ring, ring.period

    def _ring(self, subject: str, metric: Metric) -> Ring | None:
        rings = self._rings.get(subject)
        return None if rings is None else rings.get(metric)

    def _samples(self, subject: str, metric: Metric, seconds: float) -> list[float] | None:
        ring = self._ring(subject, metric)
        return None if ring is None else ring.samples(seconds, self.now)


def _cell_layout(ring: Ring | None) -> tuple[object, ...]:
    return () if ring is None else (ring.cells, ring.step, *_cell_layout(ring.recent))
