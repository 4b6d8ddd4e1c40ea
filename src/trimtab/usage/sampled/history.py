"""The samples of many hours, as a window that can be read: the hour that runs in memory, those before on a shelf."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from trimtab.usage.sampled.block_storage import Shelf
from trimtab.usage.sampled.hour_block import LENGTH, Hour, Sample
from trimtab.usage.source import Ask, Progress
from trimtab.usage.trace import Floats
from trimtab.usage.usage import PodContainer, Usage

STALE = 300.0
"""Seconds: what is older when it comes tells nothing of now, and was there before."""
AHEAD = 60.0
"""Seconds: how far a node's clock may be before ours."""
SAVE_EVERY = 300.0


class History:
    """Bounded: of cells of `step` seconds as many hours as `keep` seconds have."""

    def __init__(self, shelf: Shelf, *, step: float, keep: float) -> None:
        self._shelf = shelf
        self._step = step
        self._keep = keep
        self._running: dict[int, Hour] = {}
        self._latest: dict[PodContainer, float] = {}
        self._saved = 0.0
        self.not_believed = 0
        """How many of the last samples are by their time too old, or still to come."""

    async def take(self, samples: Sequence[Sample], *, now: float) -> int:
        """Keep what is new and can be believed; how many samples that were."""
        latest = self._latest
        self._latest = {}  # of those that are there: what is gone is forgotten
        self.not_believed = 0
        fresh = []
        for sample in samples:
            before = self._latest.get(sample.container, latest.get(sample.container, -math.inf))
            if before > now + AHEAD:  # a clock was ahead: what comes now is new all the same
                before = -math.inf
            if not now - STALE <= sample.at <= now + AHEAD:
                self.not_believed += 1
            elif sample.at > before:
                fresh.append(sample)
                before = sample.at
            self._latest[sample.container] = before
        by_hour: defaultdict[int, list[Sample]] = defaultdict(list)
        for sample in fresh:
            by_hour[int(sample.at // LENGTH)].append(sample)
        for number, some in by_hour.items():
            (await self._hour(number)).add(some)
        if not 0 <= now - self._saved < SAVE_EVERY:
            await self.save(now=now)
        return len(fresh)

    async def save(self, *, now: float) -> None:
        """Lay by what runs, and forget what is too old."""
        for number, hour in sorted(self._running.items()):
            await self._shelf.put(hour)
            if (number + 1) * LENGTH + STALE < now:
                del self._running[number]
        # Counted, and not by the clock: one that is ahead for a moment would have all of them forgotten. Beside whole
        # hours there are the one that runs and the one that is kept in part.
        for number in (await self._shelf.numbers())[: -(math.ceil(self._keep / LENGTH) + 2)]:
            await self._shelf.forget(number)
        self._saved = now

    async def numbers(self) -> list[int]:
        """The hours of which there are samples."""
        return sorted({*await self._shelf.numbers(), *self._running})

    async def usage(self, ask: Ask, *, progress: Progress | None = None) -> Usage:
        """The window that is asked for, from what there is of it."""
        window = _Window(ask)
        first, last = int(ask.start // LENGTH), int(ask.end // LENGTH)
        numbers = [number for number in await self.numbers() if first <= number <= last]
        for done, number in enumerate(numbers, start=1):
            hour = self._running.get(number) or await self._shelf.get(number)
            if hour is not None:
                window.lay(hour)
            if progress is not None:
                progress(done / len(numbers))
        return window.usage()

    async def _hour(self, number: int) -> Hour:
        """One to add to: as it was before a restart, unless its cells were of another length."""
        if number not in self._running:
            kept = await self._shelf.get(number)
            fits = kept is not None and kept.step == self._step
            self._running[number] = kept if kept is not None and fits else Hour(number, step=self._step)
        return self._running[number]


class _Window:
    """The grid of an ask while it is filled."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._columns: dict[PodContainer, int] = {}
        self._sums, self._counts = np.zeros((2, ask.steps, 0))
        self._memory = np.full((ask.steps, 0), np.nan)

    def lay(self, hour: Hour) -> None:
        wanted = self._ask.namespaces
        there = [
            (container, column)
            for container, column in hour.containers.items()
            if wanted is None or container.namespace in wanted
        ]
        rows = np.floor((hour.times - self._ask.start) / self._ask.step + 1e-9).astype(np.int64)
        cells = np.flatnonzero((rows >= 0) & (rows < self._ask.steps))
        if not there or not len(cells):
            return
        into = np.array([self._columns.setdefault(container, len(self._columns)) for container, _ in there])
        self._widen()
        here = np.ix_(cells, np.array([column for _, column in there]))
        place = np.ix_(rows[cells], into)
        np.add.at(self._sums, place, hour.cpu[here])
        np.add.at(self._counts, place, hour.counts[here])
        np.fmax.at(self._memory, place, hour.memory[here])

    def _widen(self) -> None:
        missing = len(self._columns) - self._sums.shape[1]
        if missing > 0:
            more = ((0, 0), (0, max(missing, self._sums.shape[1])))
            self._sums, self._counts = np.pad(self._sums, more), np.pad(self._counts, more)
            self._memory = np.pad(self._memory, more, constant_values=np.nan)

    def usage(self) -> Usage:
        cpu: Floats = np.full_like(self._sums, np.nan)
        np.divide(self._sums, self._counts, out=cpu, where=self._counts > 0)
        sampled = ~(np.isnan(cpu) & np.isnan(self._memory)).all(axis=0)
        containers = sorted(one for one, column in self._columns.items() if sampled[column])
        order = [self._columns[container] for container in containers]
        return Usage(
            containers=tuple(containers),
            start=self._ask.start,
            step=self._ask.step,
            cpu=cpu[:, order],
            memory=self._memory[:, order],
        )
