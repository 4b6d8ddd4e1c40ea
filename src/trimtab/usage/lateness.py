"""Decide which steps of a read are complete, although some samples may reach a server late.

A strategy that learns each step once must wait until no more samples of it are expected: otherwise a
remote-write queue that is minutes behind would lose them for good. A missing sample is detected per
container: it runs, it had samples before, and this step has none. A step with some samples may be partial
until the next step has samples too and it has been read twice. The wait is bounded, and a container that is
scraped less often than others is not expected to have a sample in every step. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from trimtab.usage.trace import Floats
from trimtab.usage.usage import PodContainer, Usage

Booleans = npt.NDArray[np.bool_]

_NEVER = -np.inf


class SampleTracker:
    """The last sample time and usual sample interval of each container, and the state of the last read."""

    def __init__(self) -> None:
        self._rows: dict[PodContainer, int] = {}
        self._last_sampled, self._gap, self._gap_before = np.empty((3, 0))
        self._incomplete_columns: dict[PodContainer, int] = {}
        self._incomplete_start = 0.0
        self._incomplete_sampled: Booleans = np.zeros((0, 1), np.bool_)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[PodContainer]:
        return iter(self._rows)

    def __contains__(self, name: PodContainer) -> bool:
        return name in self._rows

    def last_sample_times(self, names: Sequence[PodContainer]) -> Floats:
        """Return the time of each container's last step with a sample; -inf if there was none."""
        return self._lookup(self._last_sampled, names, _NEVER)

    def sample_intervals(self, names: Sequence[PodContainer]) -> Floats:
        """Return each container's gap in seconds that occurred twice in a row; one gap may be an outage."""
        return self._lookup(np.minimum(self._gap, self._gap_before), names, 0.0)

    def record(self, usage: Usage, *, expire_before: float, coarse: bool = False) -> None:
        """Record the next steps and drop containers without a sample since `expire_before`.

        Coarse steps do not reveal the sample interval.
        """
        sampled = _mark_sampled(usage)
        columns = np.flatnonzero(sampled.any(axis=0))
        rows = self._assign_rows([usage.containers[column] for column in columns])
        for t, there in zip(usage.times, sampled[:, columns], strict=True):
            seen = rows[there]
            self._gap_before[seen] = self._gap[seen]
            unknown = np.isneginf(self._last_sampled[seen]) | coarse
            self._gap[seen] = np.where(unknown, 0.0, t - self._last_sampled[seen])
            self._last_sampled[seen] = t
        if (self._last_sampled < expire_before).any():
            self._retain(
                [name for name, row in self._rows.items() if self._last_sampled[row] >= expire_before]
            )

    def record_incomplete(self, usage: Usage) -> None:
        """Record which of the incomplete steps have samples in this read."""
        self._incomplete_columns = {name: place for place, name in enumerate(usage.containers)}
        self._incomplete_start = usage.start
        none = np.zeros((usage.steps, 1), np.bool_)
        self._incomplete_sampled = np.hstack([_mark_sampled(usage), none])

    def had_samples(self, names: Sequence[PodContainer], times: Floats, step: float) -> Booleans:
        """Mark the samples that the last read already had; one row per time, one column per container."""
        columns = [self._incomplete_columns.get(name, -1) for name in names]
        rows = np.rint((times - self._incomplete_start) / step).astype(np.intp)
        read = (rows >= 0) & (rows < len(self._incomplete_sampled))
        found: Booleans = np.zeros((len(times), len(names)), np.bool_)
        found[read] = self._incomplete_sampled[rows[read]][:, columns]
        return found

    def _lookup(self, known: Floats, names: Sequence[PodContainer], missing: float) -> Floats:
        rows = np.fromiter((self._rows.get(name, -1) for name in names), np.intp, len(names))
        values = np.full(len(names), missing)
        values[rows >= 0] = known[rows[rows >= 0]]
        return values

    def _assign_rows(self, names: Iterable[PodContainer]) -> npt.NDArray[np.intp]:
        rows = [self._rows.setdefault(name, len(self._rows)) for name in names]
        more = len(self._rows) - self._last_sampled.size
        self._last_sampled = np.append(self._last_sampled, np.full(more, _NEVER))
        self._gap, self._gap_before = (
            np.append(known, np.zeros(more)) for known in (self._gap, self._gap_before)
        )
        return np.array(rows, np.intp)

    def _retain(self, names: Sequence[PodContainer]) -> None:
        rows = np.array([self._rows[name] for name in names], np.intp)
        self._last_sampled, self._gap, self._gap_before = (
            known[rows] for known in (self._last_sampled, self._gap, self._gap_before)
        )
        self._rows = {name: row for row, name in enumerate(names)}


def count_complete_steps(
    usage: Usage,
    *,
    running: Mapping[PodContainer, float],
    tracker: SampleTracker,
    final_until: float,
    atomic_steps: bool,
) -> int:
    """Return the number of leading steps that are complete, that is, without samples still to come.

    `running` has the start time of each container that should have samples. `tracker` knows their samples
    before these steps, and those of these steps at the last read. Steps up to `final_until` are complete in
    any case. With `atomic_steps` a container's step has all of its samples or none.

    Samples are expected from a container's first sample after its start on, so a container that is never
    scraped delays nothing. For a container that is sampled less often than every step, only samples later
    than its usual interval are waited for.
    """
    times, step = usage.times, usage.step
    waits = _mark_after_last_sample(usage, atomic_steps=atomic_steps)
    here = {name: place for place, name in enumerate(usage.containers)}
    names = [name for name in running if name in here or name in tracker]
    if names:
        columns = [here.get(name, -1) for name in names]
        none = np.zeros((usage.steps, 1), np.bool_)  # the column of containers without any sample here
        sampled = np.hstack([_mark_sampled(usage), none])[:, columns]
        begun = np.array([running[name] for name in names])
        sampled &= times[:, None] >= begun
        before, usual = tracker.last_sample_times(names), tracker.sample_intervals(names)
        before[before < begun] = _NEVER
        often = usual <= step
        waits |= _mark_overdue(sampled, times, step, before, np.where(often, step, usual + step)).any(axis=1)
        if not atomic_steps:
            followed = np.vstack([sampled[1:], np.zeros((1, len(names)), np.bool_)])
            partly = sampled & ~(followed & tracker.had_samples(names, times, step))
            waits |= partly[:, often].any(axis=1)
    waits &= times > final_until
    return int(waits.argmax()) if waits.any() else usage.steps


def _mark_after_last_sample(usage: Usage, *, atomic_steps: bool) -> Booleans:
    """Mark the steps after the last one that has any sample, and that one too if it may get more."""
    anybody: Booleans = np.asarray(~(np.isnan(usage.cpu) & np.isnan(usage.memory)).all(axis=1))
    last = usage.steps - 1 - int(anybody[::-1].argmax()) if anybody.any() else -1
    marked: Booleans = np.arange(usage.steps) > last
    if last >= 0 and not atomic_steps:
        marked[last] = True
    return marked


def _mark_sampled(usage: Usage) -> Booleans:
    """Mark the cells with a sample of both resources, or of the only one there is.

    A rate becomes available later than a gauge.
    """
    sampled: Booleans = np.ones(usage.cpu.shape, np.bool_)
    for grid in (usage.cpu, usage.memory):
        there = ~np.isnan(grid)
        if there.any():
            sampled &= there
    return sampled & ~(np.isnan(usage.cpu) & np.isnan(usage.memory))


def _mark_overdue(sampled: Booleans, times: Floats, step: float, before: Floats, usual: Floats) -> Booleans:
    """Mark the cells of containers that had a sample before and have had none for longer than usual."""
    previous = np.maximum.accumulate(np.where(sampled, times[:, None], _NEVER), axis=0)
    previous = np.maximum(previous, before)
    following = np.minimum.accumulate(np.where(sampled, times[:, None], np.inf)[::-1], axis=0)[::-1]
    # Nothing is known after the last step: a sample counts as late once its own step is over.
    until = np.where(np.isinf(following), times[-1] + step, following)
    overdue: Booleans = ~sampled & np.isfinite(previous) & (until - previous > usual + step / 4)
    return overdue
