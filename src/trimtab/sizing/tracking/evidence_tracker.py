"""Track evidence about each container beside its strategy: history, peaks, OOM kills, throttling, shifts of usage.

Like a strategy it gets every sample once, in the order of time, and keeps arrays with one row per container.
The state of a container does not grow: peaks are kept by slices of time, kills by size. State of the first version is
still read, because with a source without history, such as metrics-server, the evidence could not be collected again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from pydantic import Field

from trimtab.plugins import Settings
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.state import MAX_PLAUSIBLE_CPU, MAX_PLAUSIBLE_MEMORY, Array, ArrayState, Floats, Indices
from trimtab.sizing.stats.window import NEVER, RollingMaxima
from trimtab.sizing.tracking.oom_records import KillRecords
from trimtab.sizing.tracking.usage_shifts import UsageShiftTracker

KILLS = 8
SLICES = 12
SHIFTS = "shifts."
"""The prefix of the arrays of usage shifts."""


class LegacyEvidenceSettings(Settings):
    """The settings of the first version's tracker."""

    window: float = Field(default=86400.0, ge=1)
    """Seconds in which peaks were the highest."""


class LegacyEvidenceTracker(ArrayState[LegacyEvidenceSettings]):
    """The arrays of the first version."""

    name = "witness"

    def __init__(self, containers: int, settings: LegacyEvidenceSettings) -> None:
        super().__init__(containers, settings)
        self.cpu = RollingMaxima(containers, seconds=settings.window, slices=SLICES)
        self.memory = RollingMaxima(containers, seconds=settings.window, slices=SLICES)
        self.counters: dict[str, Array] = {
            "samples": np.zeros(containers, np.int64),
            "due": np.zeros(containers, np.int64),
            "ran": np.zeros(containers),
            "first": np.full(containers, np.nan),
            "last": np.full(containers, np.nan),
            "throttled": np.full(containers, np.nan),
            "throttled_at": np.full(containers, np.nan),
            "killed_at": np.full((containers, KILLS), -np.inf),
            "killed_with": np.zeros((containers, KILLS)),
        }

    def arrays(self) -> dict[str, Array]:
        return self.counters | self.cpu.arrays("cpu.") | self.memory.arrays("memory.")

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        self.counters = {name: arrays[name] for name in self.counters}
        self.cpu.load_arrays("cpu.", arrays)
        self.memory.load_arrays("memory.", arrays)


Booleans = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint32]

HOUR, DAY = 3600.0, 86400.0
PEAK_WINDOW = 8 * DAY
"""Seconds for which peaks are kept: a slice more than seven days, so that last week's peak of a weekly job is
known until it runs again.
"""
PEAK_SLICES, DAY_PEAK_SLICES = 16, 3
"""The number of slices of this window, and of those that hold the last day (24 to 36 hours)."""
FORGET_AFTER = 7 * DAY
"""Seconds without a sample after which earlier observation no longer counts as history."""
SIZE_HISTORY, SIZE_SLICES, RECENT_SLICES = 30 * DAY, 10, 3
"""Seconds for which earlier sizes are kept, their number of slices, and the number of recent slices."""
MIN_SIZE_DURATION = HOUR
"""Seconds for which a container must have had a size for it to count as tried."""
THROTTLING_RISE_HALF_LIFE, THROTTLING_FADE_HALF_LIFE = 3600.0, 86400.0
"""Seconds in which earlier throttling loses half its weight, if it rises and if it fades: a container that is
throttled by day must not be made smaller by night.
"""


_EVIDENCE_ARRAYS = ("samples", "ran", "ran_in_total", "first", "last", "throttled", "size_before")


class EvidenceTrackerSettings(Settings):
    """The settings of an evidence tracker; there are none."""


_COUNTED_DAYS = 8
_COVERED_DAYS = np.array([[2], [_COUNTED_DAYS]])


class DailyCounts:
    """The received and the expected samples by day, of about the last week."""

    DAYS = _COUNTED_DAYS

    def __init__(self, rows: int) -> None:
        self.epoch = np.full(self.DAYS, NEVER)
        """The number of each day since 1970."""
        self.seen = np.zeros((self.DAYS, rows), np.int32)
        self.due = np.zeros((self.DAYS, rows), np.int32)

    def add(self, t: float, seen: Booleans, due: Booleans) -> None:
        """Count one step of all containers; a day that is forgotten already is skipped."""
        day = math.floor(t / DAY)
        at = day % self.DAYS
        # Samples read from a source's history may be older than a week; added here, they would count for
        # another day.
        if self.epoch[at] > day:
            return
        if self.epoch[at] < day:
            self.epoch[at] = day
            self.seen[at] = self.due[at] = 0
        self.seen[at] += seen
        self.due[at] += due

    def coverage(self, t: float, rows: Indices) -> Floats:
        """Return the share of expected samples that arrived, in the last day or the last week, whichever is
        lower.

        Over the whole life of a container, a bad month would count for another month, and a fresh gap not at
        all.
        """
        age = math.floor(t / DAY) - self.epoch
        # Today alone would have too few samples to judge by just after midnight.
        # One row for the last day, which is today and yesterday, and one for the week.
        counted = (age >= 0) & (age < _COVERED_DAYS)
        seen, due = counted @ self.seen[:, rows], counted @ self.due[:, rows]
        # If nothing was expected, as while scaled to zero, nothing is missing.
        lowest: Floats = np.where(due > 0, seen / np.maximum(due, 1), 1.0).min(axis=0)
        return lowest

    def arrays(self, prefix: str) -> dict[str, Array]:
        return {prefix + "epoch": self.epoch, prefix + "seen": self.seen, prefix + "due": self.due}

    def load_arrays(self, prefix: str, arrays: Mapping[str, Array]) -> None:
        self.epoch, self.seen = arrays[prefix + "epoch"], arrays[prefix + "seen"]
        self.due = arrays[prefix + "due"]


class EvidenceTracker(ArrayState[EvidenceTrackerSettings]):
    """Tracks the history, peaks, OOM kills, throttling and usage shifts of each container."""

    name = "witness"
    added_arrays = frozenset({"ran_in_total", *UsageShiftTracker(1).arrays(SHIFTS)})

    def __init__(self, containers: int, settings: EvidenceTrackerSettings) -> None:
        super().__init__(containers, settings)
        self._cpu = RollingMaxima(containers, seconds=PEAK_WINDOW, slices=PEAK_SLICES)
        self._memory = RollingMaxima(containers, seconds=PEAK_WINDOW, slices=PEAK_SLICES)
        self._size_history = RollingMaxima(containers, seconds=SIZE_HISTORY, slices=SIZE_SLICES)
        self._counts = DailyCounts(containers)
        self._kills = KillRecords(containers)
        self._shifts = UsageShiftTracker(containers)
        self._arrays: dict[str, Array] = {
            "samples": np.zeros(containers, np.int64),
            "ran": np.zeros(containers),
            "ran_in_total": np.zeros(containers),
            "first": np.full(containers, np.nan),
            "last": np.full(containers, np.nan),
            "throttled": np.full(containers, np.nan),
            "throttled_at": np.full(containers, np.nan),
            "size": np.zeros(containers),
            "size_since": np.zeros(containers),
            "size_before": np.zeros(containers),
            "image": np.zeros(containers, np.uint32),
        }

    def observe(
        self,
        t: float,
        cpu: Floats,
        memory: Floats,
        *,
        throttled: Floats | None = None,
        running: Booleans | None = None,
        sample_seconds: float = 0.0,
    ) -> None:
        """Record one sample of each container; `running` names those that should have had one.

        Each sample lasts `sample_seconds`; 0 if a replica was recorded for the same time before.
        """
        own = self._arrays
        seen = ((cpu >= 0) & (cpu <= MAX_PLAUSIBLE_CPU)) | ((memory >= 0) & (memory <= MAX_PLAUSIBLE_MEMORY))
        self._cpu.add(t, cpu, MAX_PLAUSIBLE_CPU)
        self._memory.add(t, memory, MAX_PLAUSIBLE_MEMORY)
        # Before its first sample a container may not have existed, or not been scraped.
        due = seen if running is None else seen | (running & ~np.isnan(own["first"]))
        self._counts.add(t, seen, due)
        self._shifts.observe(t, cpu, memory, seconds=sample_seconds, observed=own["ran"])
        own["samples"] += seen
        own["ran"][seen & (t - own["last"] > FORGET_AFTER)] = 0.0
        own["ran"] += seen * sample_seconds
        own["ran_in_total"] += seen * sample_seconds
        own["first"][seen & np.isnan(own["first"])] = t
        own["last"][seen] = t
        if throttled is not None:
            self._observe_throttling(t, throttled)

    def observe_oom(
        self,
        t: Floats,
        containers: Indices,
        memory: Floats,
        *,
        images: Hashes | None = None,
        estimated: bool = False,
    ) -> Booleans:
        """Record OOM kills with their times; return which of them are new.

        `memory` is what the container had. With `estimated` it comes from a usage source, which knows a
        sample at most: such a kill counts at least at the size of the next `observe_sizes`. `images` are
        fingerprints of the killed images: a kill of another image than the present one does not count.
        """
        with np.errstate(invalid="ignore"):
            believed = (memory >= 0) & (memory <= MAX_PLAUSIBLE_MEMORY)
        if estimated:  # A kill without any sample counts as well: its size follows later.
            believed = np.ones(t.size, np.bool_)
            memory = np.clip(np.nan_to_num(memory), 0.0, MAX_PLAUSIBLE_MEMORY)
        if images is not None:
            now = self._arrays["image"][containers]
            # An unknown image, 0, must not hide a kill.
            believed &= (images == 0) | (now == 0) | (images == now)
        return self._kills.add(t, containers, memory, plausible=believed, estimated=estimated)

    def observe_sizes(
        self,
        t: float,
        containers: Indices,
        memory: Floats,
        *,
        before: Floats,
        images: Hashes,
        cpu: Floats | None = None,
    ) -> None:
        """Record the memory that these containers have in effect: the limit, or the request if there is none.

        `before` is the largest that they are known to have had, by their template or the annotations of a
        change. `images` are fingerprints of their images, 0 if unknown. A new image starts without kills.
        `cpu` is their CPU in cores (`UsageShiftTracker.observe_cpu_sizes`).
        """
        own = self._arrays
        known = own["image"][containers]
        replaced = containers[(known != 0) & (images != 0) & (known != images)]
        self._kills.forget(replaced)
        self._shifts.explain(t, replaced, "cpu", "memory")
        if cpu is not None:
            self._shifts.observe_cpu_sizes(t, containers, cpu)
        own["image"][containers] = np.where(images != 0, images, known)
        self._kills.correct(containers, memory)
        # Only a change restarts the clock: sizes are observed in every round.
        moved = own["size"][containers] != memory
        self._shifts.explain(t, containers[moved & (own["size"][containers] > 0)], "memory")
        own["size"][containers] = memory
        own["size_since"][containers[moved]] = t
        own["size_before"][containers] = before
        held = t - own["size_since"][containers] >= MIN_SIZE_DURATION
        if (turned := self._size_history.advance(t)) is not None:
            peaks = self._size_history.peaks[turned[0]]
            peaks[containers[held]] = np.maximum(peaks[containers[held]], memory[held])

    def observe_replicas(self, containers: Indices, replicas: Indices) -> None:
        """Record how many replicas of these containers run; 0 is unknown."""
        self._shifts.observe_replicas(containers, replicas)

    def collect_evidence(
        self, t: float, containers: Indices, *, is_long_running: Sequence[bool]
    ) -> list[Evidence]:
        """Return the evidence about these containers; `is_long_running` is False for those of Jobs."""
        own = {name: self._arrays[name][containers].tolist() for name in _EVIDENCE_ARRAYS}
        cpu, cpu_week, memory = (
            self._cpu.peak(t, containers, slices=DAY_PEAK_SLICES).tolist(),
            self._cpu.peak(t, containers).tolist(),
            self._memory.peak(t, containers).tolist(),
        )
        coverage = self._counts.coverage(t, containers).tolist()
        recent, earlier = (
            self._size_history.peak(t, containers, slices=slices).tolist() for slices in (RECENT_SLICES, None)
        )
        return [
            Evidence(
                samples=own["samples"][index],
                run_seconds=own["ran"][index],
                total_run_seconds=own["ran_in_total"][index],
                first_sample_at=_or_zero(own["first"][index]),
                last_sample_at=_or_zero(own["last"][index]),
                # The pauses between the runs of a Job are no gaps.
                coverage=coverage[index] if is_long_running[index] else 1.0,
                is_long_running=is_long_running[index],
                cpu_peak=_to_int(cpu[index] * 1000),
                cpu_peak_week=_to_int(cpu_week[index] * 1000),
                memory_peak=_to_int(memory[index]),
                throttled_share=None if math.isnan(own["throttled"][index]) else own["throttled"][index],
                kills=self._kills.list_kills(t, int(row)),
                recent_memory=_to_int(recent[index]) or 0,
                earlier_memory=max(_to_int(earlier[index]) or 0, int(own["size_before"][index])),
                # A Job uses what its input asks for, at the time at which it runs.
                usage_shift=self._shifts.find_shift(t, int(row)) if is_long_running[index] else None,
            )
            for index, row in enumerate(containers)
        ]

    def memory_peak(self, t: float, containers: Indices) -> Floats:
        """Return the highest memory of these containers in the week up to `t`; NaN where there is no sample."""
        return self._memory.peak(t, containers)

    def first_sample_at(self, containers: Indices) -> float | None:
        """Return the time of the first sample of these containers; None where they have none."""
        # Unlike `min`, `fmin` ignores NaN: one container without samples would hide those of all others.
        first = float(np.fmin.reduce(self._arrays["first"][containers], initial=np.nan))
        return None if math.isnan(first) else first

    def arrays(self) -> dict[str, Array]:
        return {
            **self._arrays,
            **self._cpu.arrays("cpu_week."),
            **self._memory.arrays("memory_week."),
            **self._size_history.arrays("had."),
            **self._counts.arrays("counts."),
            **self._kills.arrays("kills."),
            **self._shifts.arrays(SHIFTS),
        }

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        known = {"ran_in_total": arrays["ran"].copy(), **arrays}
        self._arrays = {name: known[name] for name in self._arrays}
        self._cpu.load_arrays("cpu_week.", arrays)
        self._memory.load_arrays("memory_week.", arrays)
        self._size_history.load_arrays("had.", arrays)
        self._counts.load_arrays("counts.", arrays)
        self._kills.load_arrays("kills.", arrays)
        self._shifts.load_arrays(SHIFTS, arrays)

    def restore(self, state: bytes) -> None:
        """Restore the bytes that `state` returned, also in the first version, which did not keep kills by
        size.
        """
        try:
            super().restore(state)
        except ValueError:
            former = LegacyEvidenceTracker(self.containers, LegacyEvidenceSettings())
            former.restore(state)
            self._load_legacy(former)

    def _load_legacy(self, former: LegacyEvidenceTracker) -> None:
        for name in self._arrays.keys() & former.counters.keys():
            self._arrays[name] = former.counters[name]
        self._arrays["ran_in_total"] = former.counters["ran"].copy()
        for maxima, week in ((former.cpu, self._cpu), (former.memory, self._memory)):
            for at in np.argsort(maxima.epoch).tolist():
                if maxima.epoch[at] != NEVER:
                    week.add(maxima.epoch[at] * maxima.slice_seconds, maxima.peaks[at], math.inf)
        times, sizes = former.counters["killed_at"], former.counters["killed_with"]
        for row, index in zip(*np.nonzero(np.isfinite(times)), strict=True):
            self._kills.add(
                times[row, index : index + 1],
                np.array([row]),
                sizes[row, index : index + 1],
                plausible=np.ones(1, np.bool_),
                estimated=False,
            )

    def _observe_throttling(self, t: float, throttled: Floats) -> None:
        """Update the recent share of throttled periods by an exponential average."""
        own = self._arrays
        known = (throttled >= 0) & (throttled <= 1)
        with np.errstate(invalid="ignore"):
            before = np.nan_to_num(own["throttled"])
            half_life = np.where(throttled > before, THROTTLING_RISE_HALF_LIFE, THROTTLING_FADE_HALF_LIFE)
            left = 0.5 ** np.maximum((t - own["throttled_at"]) / half_life, 0.0)
        # The first measurement has nothing before it to be averaged with.
        left[np.isnan(left)] = 0.0
        own["throttled"][known] = (before * left + throttled * (1 - left))[known]
        own["throttled_at"][known] = t


def _or_zero(time: float) -> float:
    return 0.0 if math.isnan(time) else time


def _to_int(amount: float) -> int | None:
    return None if math.isnan(amount) else math.ceil(amount)
