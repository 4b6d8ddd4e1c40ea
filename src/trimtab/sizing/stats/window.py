"""A rolling window of usage in bounded memory: any quantile within 1 %, the maximum and the count exactly.

The window is a ring of slices. A new slice replaces the oldest, so that the window is between one slice short
and whole. Values are counted in buckets 2 % wide; a quantile is the middle of its bucket, and so at most 1 %
(and half the first bucket: 5 millionths of a core, 5 kB) from the sample of that rank. As in `histogram`,
buckets lie in pages from one pool, and a page holds its buckets for all slices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.kernel import kernel
from trimtab.sizing.state import MAX_PLAUSIBLE_CPU, MAX_PLAUSIBLE_MEMORY, Array, Floats
from trimtab.sizing.stats.histogram import (
    MASK,
    NO_BUCKET,
    PAGE,
    SHIFT,
    BucketIndices,
    Buckets,
    build_exponential_buckets,
    find_buckets,
)

MAX_COUNT = 65535
_MAX_KEPT_WINDOWS = 8
NEVER = -(2**62)

CPU_BUCKETS = build_exponential_buckets(first=1e-5, growth=0.02, most=1e3, units=1e7)
MEMORY_BUCKETS = build_exponential_buckets(first=1e4, growth=0.02, most=1e13, units=1.0)


class WindowSlices(NamedTuple):
    """The arrays of a rolling window."""

    samples: npt.NDArray[np.uint32]
    """The number of samples, by slice and row."""
    pages: npt.NDArray[np.int32]
    pool: npt.NDArray[np.uint16]
    """The counts by page, slice and bucket."""
    used: npt.NDArray[np.int64]


@kernel(error_model="numpy")
def count_in_buckets(slices: WindowSlices, start: int, at: int, found: BucketIndices) -> int:
    """Count each value in its bucket of slice `at`; return the row at which no page was left."""
    samples, pages, pool, used = slices.samples, slices.pages, slices.pool, slices.used
    for row in range(start, found.size):
        bucket = found[row]
        if bucket == NO_BUCKET:
            continue
        block, index = np.uint64(bucket >> SHIFT), np.uint64(bucket & MASK)
        page = np.uint64(pages[row, block])
        if page == 0:
            if used[0] == pool.shape[0]:
                return row
            page = np.uint64(used[0])
            used[0] += 1
            pages[row, block] = page
        # Sixteen bits would wrap around to 0, and the busiest bucket would vanish. A sample that is not
        # counted here is left out of the total as well, or quantiles would never be reached.
        if pool[page, at, index] < MAX_COUNT:
            pool[page, at, index] += 1
            samples[at, row] += 1
    return found.size


@kernel(error_model="numpy")
def find_quantiles(
    slices: WindowSlices,
    live: npt.NDArray[np.intp],
    totals: npt.NDArray[np.int64],
    middles: Floats,
    quantiles: Floats,
    answers: Floats,
) -> None:
    """Compute the quantiles of each row, ascending down its column, over the live slices, which hold `totals` samples."""
    held = np.empty(PAGE)
    for row in range(totals.size):
        passed, which = 0.0, 0
        for block in range(slices.pages.shape[1] if totals[row] else 0):
            page = slices.pages[row, block]
            # Page 0 is shared by all buckets that were never used.
            if page == 0 or which == quantiles.shape[0]:
                continue
            held[:] = 0.0
            for at in live:
                held += slices.pool[page, at]
            for index in range(PAGE):
                passed += held[index]
                # At least one sample: a quantile of 0 would otherwise be answered by the first bucket,
                # however empty.
                while which < quantiles.shape[0] and passed >= max(1.0, quantiles[which, row] * totals[row]):
                    answers[which, row] = middles[block * PAGE + index]
                    which += 1


class RollingMaxima:
    """The highest sample of each row in a window of time: the ring of slices, without their buckets."""

    def __init__(self, rows: int, *, seconds: float, slices: int) -> None:
        self.slice_seconds = seconds / slices
        self.epoch = np.full(slices, NEVER)
        """The number of each slice since the beginning of time."""
        self.peaks = np.full((slices, rows), -np.inf)
        self._live: dict[tuple[int, int], npt.NDArray[np.bool_]] = {}
        """The live slices, by the present slice and the size of the window: each workload asks for the same ones."""
        self._by_age: tuple[int, npt.NDArray[np.intp], npt.NDArray[np.bool_]] | None = None
        """The present slice, the indices of the slices from it backwards, and which of these have samples."""

    def advance(self, t: float) -> tuple[int, bool] | None:
        """Return the index of the slice of `t`, and whether it is new and therefore empty.

        Return None if a later slice has replaced it already: an OOM kill may be reported days after it
        happened.
        """
        now = math.floor(t / self.slice_seconds)
        at = now % self.epoch.size
        if self.epoch[at] == now:
            return at, False
        if self.epoch[at] > now:
            return None
        self.epoch[at] = now
        self.peaks[at] = -np.inf
        self._forget_ages()
        return at, True

    def live_slices(self, t: float, slices: int | None = None) -> npt.NDArray[np.bool_]:
        """Return which slices are in the window that ends at `t`, or in its last `slices` slices."""
        present, size = math.floor(t / self.slice_seconds), slices or self.epoch.size
        alive = self._live.get((present, size))
        if alive is None:
            # Two presents at once: a history is read up to a time while reconciles ask for the last days before now.
            if len(self._live) >= _MAX_KEPT_WINDOWS:
                self._live.clear()
            alive = self._live[present, size] = self.epoch > present - size
        return alive

    def has_begun(self, t: float) -> bool:
        """Return whether the slice of `t` has any sample yet."""
        now = math.floor(t / self.slice_seconds)
        return bool(self.epoch[now % self.epoch.size] == now)

    def add(self, t: float, values: Floats, most: float) -> None:
        """Add one sample per row; implausible values are skipped."""
        turned = self.advance(t)
        if turned is None:
            return
        at, _ = turned
        believed = (values >= 0.0) & (values <= most)
        np.maximum(self.peaks[at], values, out=self.peaks[at], where=believed)

    def peak(
        self, t: float, rows: npt.NDArray[np.intp] | None = None, *, slices: int | None = None
    ) -> Floats:
        """Return the highest sample of each row, or of these rows, in the window or its last slices; NaN if
        it is empty.
        """
        peaks = self.peaks if rows is None else self.peaks[:, rows]
        highest: Floats = peaks[self.live_slices(t, slices)].max(axis=0, initial=-np.inf)
        highest[highest == -np.inf] = np.nan
        return highest

    def peaks_by_age(self, t: float, row: int) -> tuple[float, ...]:
        """Return the highest sample of a row in each slice of the window, the latest first; 0 for an empty
        one.
        """
        present = math.floor(t / self.slice_seconds)
        if self._by_age is None or self._by_age[0] != present:
            numbers = present - np.arange(self.epoch.size)
            at = numbers % self.epoch.size
            self._by_age = present, at, self.epoch[at] == numbers
        _, at, has_samples = self._by_age
        return tuple(np.maximum(np.where(has_samples, self.peaks[at, row], 0.0), 0.0).tolist())

    def arrays(self, prefix: str) -> dict[str, Array]:
        """Return the arrays to store, under names with this prefix."""
        return {prefix + "epoch": self.epoch, prefix + "peaks": self.peaks}

    def load_arrays(self, prefix: str, arrays: Mapping[str, Array]) -> None:
        """Load the arrays that `arrays` returned."""
        self.epoch, self.peaks = arrays[prefix + "epoch"], arrays[prefix + "peaks"]
        self._forget_ages()

    def _forget_ages(self) -> None:
        self._live.clear()
        self._by_age = None


class RollingWindow:
    """The samples of each row in a window of time."""

    def __init__(self, rows: int, buckets: Buckets, *, seconds: float, slices: int) -> None:
        pages = -(-buckets.ends.size // PAGE)
        self.buckets = buckets
        self.maxima = RollingMaxima(rows, seconds=seconds, slices=slices)
        self._middles = (np.array([0.0, *buckets.ends[:-1]]) + buckets.ends) / 2
        self._most = MAX_PLAUSIBLE_CPU if buckets is CPU_BUCKETS else MAX_PLAUSIBLE_MEMORY
        self.slices = WindowSlices(
            samples=np.zeros((slices, rows), np.uint32),
            pages=np.zeros((rows, pages), np.int32),
            pool=np.zeros((4 * rows + 2, slices, PAGE), np.uint16),
            used=np.ones(1, np.int64),
        )

    def add(self, t: float, values: Floats) -> None:
        """Add one sample per row; implausible values are skipped."""
        turned = self.maxima.advance(t)
        if turned is None:
            return
        at, new = turned
        if new:
            self.slices.samples[at] = 0
            # Only the pages in use: clearing the whole pool would touch memory that the kernel has not had to
            # provide yet.
            self.slices.pool[: int(self.slices.used[0]), at] = 0
        self.maxima.add(t, values, self._most)
        found = find_buckets(self.buckets, values, self._most)
        row = 0
        while (row := count_in_buckets(self.slices, row, at, found)) < found.size:
            pool = self.slices.pool
            # A quarter more each time: doubling would hold three times the memory of a million containers for
            # a moment.
            longer = np.zeros((pool.shape[0] * 5 // 4 + PAGE, *pool.shape[1:]), np.uint16)
            longer[: pool.shape[0]] = pool
            self.slices = self.slices._replace(pool=longer)

    def quantiles(self, t: float, *quantiles: float) -> Floats:
        """Return ascending quantiles of the window that ends at `t`, one per row of the result; NaN if it is
        empty.
        """
        totals = self.sample_counts(t)
        return self._find_quantiles(t, totals, np.outer(quantiles, np.ones(totals.size)))

    def interpolated_quantile(
        self, t: float, quantile: float, rows: npt.NDArray[np.intp] | None = None
    ) -> Floats:
        """Return a quantile between the two nearest samples as `quantile_over_time` of PromQL, NaN for an empty row.

        Rows other than `rows`, if given, are NaN too.
        """
        totals = self.sample_counts(t)
        if rows is not None:
            chosen = np.zeros_like(totals)
            chosen[rows] = totals[rows]
            totals = chosen
        rank = quantile * np.maximum(totals - 1, 0)
        below = np.floor(rank)
        # Half a sample less than the count up to and including the rank, so that no rounding error passes it.
        ranks = np.stack([below + 0.5, np.minimum(below + 1.5, np.maximum(totals - 0.5, 0.5))])
        low, high = self._find_quantiles(t, totals, ranks / np.maximum(totals, 1))
        answer: Floats = low + (high - low) * (rank - below)
        return answer

    def clear(self, rows: npt.NDArray[np.intp]) -> None:
        """Forget the samples of these rows; the highest of them stays until its slice ends."""
        self.slices.samples[:, rows] = 0
        held = self.slices.pages[rows]
        self.slices.pool[held[held > 0]] = 0

    def _find_quantiles(self, t: float, totals: npt.NDArray[np.int64], quantiles: Floats) -> Floats:
        answers = np.full(quantiles.shape, np.nan)
        live = np.flatnonzero(self.maxima.live_slices(t))
        find_quantiles(self.slices, live, totals, self._middles, quantiles, answers)
        return answers

    def sample_counts(self, t: float) -> npt.NDArray[np.int64]:
        """Return the number of samples of each row in the window."""
        counted: npt.NDArray[np.int64] = self.slices.samples[self.maxima.live_slices(t)].sum(
            axis=0, dtype=np.int64
        )
        return counted

    def peak(self, t: float) -> Floats:
        """Return the highest sample of each row in the window; NaN if it is empty."""
        return self.maxima.peak(t)

    def arrays(self, prefix: str) -> dict[str, Array]:
        """Return the arrays to store, under names with this prefix."""
        kept = self.slices._replace(pool=self.slices.pool[: int(self.slices.used[0])])
        counts = {prefix + name: array for name, array in kept._asdict().items()}
        return self.maxima.arrays(prefix) | counts

    def load_arrays(self, prefix: str, arrays: Mapping[str, Array]) -> None:
        """Load the arrays that `arrays` returned; raise ValueError for indices that a compiled loop would
        follow out of bounds.
        """
        slices = WindowSlices(**{name: arrays[prefix + name] for name in WindowSlices._fields})
        pool = slices.pool.shape[0]
        pages = slices.pages
        if not (1 <= slices.used[0] == pool and pages.min(initial=0) >= 0 and pages.max(initial=0) < pool):
            raise ValueError(f"state: the pages of {prefix!r} are not in order")
        self.slices = slices
        self.maxima.load_arrays(prefix, arrays)
