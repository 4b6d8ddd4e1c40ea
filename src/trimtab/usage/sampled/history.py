"""A readable history of samples: open hours in memory, earlier ones in block storage."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from trimtab.timing import Interval
from trimtab.usage.sampled.block_storage import BlockStorage
from trimtab.usage.sampled.hour_block import HOUR_SECONDS, ContainerSample, HourBlock
from trimtab.usage.source import Progress, UsageQuery
from trimtab.usage.trace import Floats
from trimtab.usage.usage import PodContainer, Usage

MAX_SAMPLE_AGE = 300.0
"""The maximum age in seconds of a new sample; an older one says nothing about the present."""
MAX_CLOCK_SKEW = 60.0
"""The maximum seconds by which a node's clock may be ahead of ours."""
SAVE_INTERVAL = 300.0


class SampleHistory:
    """A history of cells of `step` seconds, bounded to `retention` seconds."""

    def __init__(self, storage: BlockStorage, *, step: float, retention: float) -> None:
        self._storage = storage
        self._step = step
        self._retention = retention
        self._open_hours: dict[int, HourBlock] = {}
        self._latest_times: dict[PodContainer, float] = {}
        self._saving = Interval(SAVE_INTERVAL)
        self.rejected_count = 0
        """The number of samples of the last poll whose time is too old or in the future."""

    async def add_samples(self, samples: Sequence[ContainerSample], *, now: float) -> int:
        """Add new, plausible samples and return their number."""
        latest = self._latest_times
        self._latest_times = {}  # only of present containers
        self.rejected_count = 0
        fresh = []
        for sample in samples:
            before = self._latest_times.get(sample.container, latest.get(sample.container, -math.inf))
            if before > now + MAX_CLOCK_SKEW:  # a clock was ahead: treat the sample as new
                before = -math.inf
            if not now - MAX_SAMPLE_AGE <= sample.at <= now + MAX_CLOCK_SKEW:
                self.rejected_count += 1
            elif sample.at > before:
                fresh.append(sample)
                before = sample.at
            self._latest_times[sample.container] = before
        by_hour: defaultdict[int, list[ContainerSample]] = defaultdict(list)
        for sample in fresh:
            by_hour[int(sample.at // HOUR_SECONDS)].append(sample)
        for number, some in by_hour.items():
            (await self._load_or_create_hour(number)).add(some)
        if self._saving.due(now):
            await self.save(now=now)
        return len(fresh)

    async def save(self, *, now: float) -> None:
        """Store the open hours and delete those beyond the retention."""
        for number, hour in sorted(self._open_hours.items()):
            await self._storage.put(hour)
            if (number + 1) * HOUR_SECONDS + MAX_SAMPLE_AGE < now:
                del self._open_hours[number]
        # By number and not by the clock: a clock that is ahead for a moment must not delete the whole history.
        # The current and the oldest, partly kept hour come on top of the whole hours.
        for number in (await self._storage.list_hours())[: -(math.ceil(self._retention / HOUR_SECONDS) + 2)]:
            await self._storage.delete(number)
        self._saving.restart(now)

    async def list_hours(self) -> list[int]:
        """Return the hours that have samples."""
        return sorted({*await self._storage.list_hours(), *self._open_hours})

    async def read(self, query: UsageQuery, *, now: float, progress: Progress | None = None) -> Usage:
        """Return the requested window, as far as there are samples of it.

        The last row of a window that reaches `now` includes the step in progress.
        """
        window = _GridBuilder(query, includes_present=query.end > now)
        first = int((query.start - query.step) // HOUR_SECONDS)
        last = int(query.end // HOUR_SECONDS)
        numbers = [number for number in await self.list_hours() if first <= number <= last]
        for done, number in enumerate(numbers, start=1):
            hour = self._open_hours.get(number) or await self._storage.get(number)
            if hour is not None:
                window.add_hour(hour)
            if progress is not None:
                progress(done / len(numbers))
        return window.build()

    async def _load_or_create_hour(self, number: int) -> HourBlock:
        """Return an hour to add to, as stored before a restart unless its step was different."""
        if number not in self._open_hours:
            kept = await self._storage.get(number)
            fits = kept is not None and kept.step == self._step
            self._open_hours[number] = (
                kept if kept is not None and fits else HourBlock(number, step=self._step)
            )
        return self._open_hours[number]


class _GridBuilder:
    """Fills the grid of a query hour by hour."""

    def __init__(self, query: UsageQuery, *, includes_present: bool) -> None:
        self._query = query
        self._includes_present = includes_present
        self._columns: dict[PodContainer, int] = {}
        self._sums, self._counts = np.zeros((2, query.steps, 0))
        self._memory = np.full((query.steps, 0), np.nan)

    def add_hour(self, hour: HourBlock) -> None:
        wanted = self._query.namespaces
        there = [
            (container, column)
            for container, column in hour.containers.items()
            if wanted is None or container.namespace in wanted
        ]
        # A cell is known by its start, a row of usage by its end.
        ends = hour.times + hour.step
        rows = np.ceil((ends - self._query.start) / self._query.step - 1e-9).astype(np.int64)
        if self._includes_present:
            # Without this, a read just after the first poll would have no sample at all: its step is not over.
            rows = np.minimum(rows, self._query.steps - 1)
        cells = np.flatnonzero((rows >= 0) & (rows < self._query.steps))
        if not there or not len(cells):
            return
        into = np.array([self._columns.setdefault(container, len(self._columns)) for container, _ in there])
        self._grow()
        here = np.ix_(cells, np.array([column for _, column in there]))
        place = np.ix_(rows[cells], into)
        np.add.at(self._sums, place, hour.cpu[here])
        np.add.at(self._counts, place, hour.counts[here])
        np.fmax.at(self._memory, place, hour.memory[here])

    def _grow(self) -> None:
        missing = len(self._columns) - self._sums.shape[1]
        if missing > 0:
            more = ((0, 0), (0, max(missing, self._sums.shape[1])))
            self._sums, self._counts = np.pad(self._sums, more), np.pad(self._counts, more)
            self._memory = np.pad(self._memory, more, constant_values=np.nan)

    def build(self) -> Usage:
        cpu: Floats = np.full_like(self._sums, np.nan)
        np.divide(self._sums, self._counts, out=cpu, where=self._counts > 0)
        sampled = ~(np.isnan(cpu) & np.isnan(self._memory)).all(axis=0)
        containers = sorted(one for one, column in self._columns.items() if sampled[column])
        order = [self._columns[container] for container in containers]
        return Usage(
            containers=tuple(containers),
            start=self._query.start,
            step=self._query.step,
            cpu=cpu[:, order],
            memory=self._memory[:, order],
        )
