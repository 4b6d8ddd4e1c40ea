"""Read usage from a recording instead of a server.

It is a file in a format that back-tests read, with a series for each container of a pod, named NAMESPACE/POD/CONTAINER.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from trimtab.errors import TrimtabError
from trimtab.plugins import Settings
from trimtab.plural import format_time_span, pluralize
from trimtab.scan.source_selection import SelectedSource
from trimtab.usage.files import read_trace
from trimtab.usage.source import Capabilities, Cost, Progress, Source, SourceHealth, UsageQuery
from trimtab.usage.trace import Floats, Trace
from trimtab.usage.usage import PodContainer, Usage

BYTES_PER_SAMPLE = 16


class RecordingSource(Source[Settings]):
    """The usage of pods in a recording that was read."""

    name = "recording"
    settings_type = Settings

    def __init__(self, trace: Trace, path: Path) -> None:
        super().__init__(Settings())
        self._trace = trace
        self._path = path
        self.capabilities = Capabilities(history=True, interval=trace.step)
        self._containers = tuple(_parse_name(name, path) for name in trace.names)

    @property
    def ends_at(self) -> float:
        """The time of the last sample, at which a scan of the recording takes place."""
        return self._trace.start + (self._trace.steps - 1) * self._trace.step

    async def check(self) -> SourceHealth:
        """See `Source.check`."""
        span = format_time_span(self._trace.steps * self._trace.step)
        return SourceHealth(
            ok=True,
            detail=f"{self._path}: {pluralize(len(self._containers), 'container')}, {span}, "
            f"a sample every {self._trace.step:g} s",
        )

    async def estimate_cost(self, query: UsageQuery) -> Cost:
        """See `Source.estimate_cost`; a recording is in memory already."""
        samples = len(self._containers) * query.steps
        return Cost(
            queries=0, series=len(self._containers), samples=samples, bytes=samples * BYTES_PER_SAMPLE
        )

    async def has_usage(self, *, at: float) -> bool:
        """See `Source.has_usage`."""
        return self._trace.start <= at <= self.ends_at

    async def read(self, query: UsageQuery, *, progress: Progress | None = None) -> Usage:
        """See `Source.read`. A step longer than that of the recording has the mean CPU and the highest memory."""
        wanted = None if query.namespaces is None else set(query.namespaces)
        columns = np.array(
            [n for n, one in enumerate(self._containers) if wanted is None or one.namespace in wanted],
            np.intp,
        )
        cpu, memory = (
            self._resample(grid[:, columns], query, combine)
            for grid, combine in ((self._trace.cpu, _mean), (self._trace.memory, _max))
        )
        if progress:
            progress(1.0)
        return Usage(
            containers=tuple(self._containers[column] for column in columns),
            start=query.start,
            step=query.step,
            cpu=cpu,
            memory=memory,
        )

    def _resample(self, grid: Floats, query: UsageQuery, combine: Callable[[Floats], Floats]) -> Floats:
        trace = self._trace
        found = np.full((query.steps, grid.shape[1]), np.nan)
        for row in range(query.steps):
            at = (query.start + row * query.step - trace.start) / trace.step
            last = math.floor(at + 1e-6)
            # A sample counts for the whole step of the recording, so that a finer grid has no gaps.
            first = min(last, math.floor(at - query.step / trace.step + 1e-6) + 1)
            if last >= 0 and first < trace.steps:
                found[row] = combine(grid[max(0, first) : last + 1])
        return found


async def open_recording(path: Path) -> tuple[SelectedSource, float]:
    """Read a recording, and return it as the source of a scan, with the time at which it ends."""
    source = RecordingSource(await asyncio.to_thread(read_trace, path), path)
    health = await source.check()
    return SelectedSource(source, f"recording {health.detail}", has_history=True), source.ends_at


def _parse_name(name: str, path: Path) -> PodContainer:
    parts = name.split("/")
    if len(parts) != len(PodContainer._fields) or not all(parts):
        raise TrimtabError(
            f"{path}: series {name!r} is not named NAMESPACE/POD/CONTAINER, so that its workload is unknown; rename it"
        )
    return PodContainer(*parts)


def _mean(rows: Floats) -> Floats:
    there = ~np.isnan(rows)
    count = np.count_nonzero(there, axis=0)
    total = np.where(there, rows, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _max(rows: Floats) -> Floats:
    highest: Floats = np.fmax.reduce(rows, axis=0, initial=np.nan)
    return highest
