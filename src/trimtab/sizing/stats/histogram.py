"""Decaying histograms of usage: one row per container, buckets that grow, weights that decay.

This is the histogram of the Kubernetes VPA recommender, to the bucket and to the order of its additions,
because a percentile on the edge of a bucket is decided by the last bit of a sum. It differs in its memory
layout. A container uses few of its buckets, so they come in pages of sixteen that are allocated when first
touched, all from one pool; and the bucket of a value is looked up, not computed by a logarithm.

Old weights are not changed when time passes: new ones grow instead, by 2^(age of the reference / half-life).
When that exponent passes 100, a row's weights are scaled back and its reference moves.

Passing all of this to a compiled function costs a hundred nanoseconds, more than a sample does, so the loops
over samples call no other function. A loop that needs more pages returns its position, and is called again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.kernel import intrinsic, kernel
from trimtab.sizing.state import Array, Floats, Indices

PREFETCH_ROWS = 24
"""Rows to prefetch ahead: far enough for memory to answer, near enough for the cache to hold."""
WRITE, KEEP, DATA = 1, 3, 1


def _prefetch(_typing: Any, array: Any, page: Any, cell: Any) -> Any:  # noqa: ARG001 - their types do not matter
    """Announce a write to `array[page, place]` of a contiguous array of two dimensions. No bounds are
    checked.
    """
    # Imported here: only where numba compiles it, and not where the library that the image ships is loaded.
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        held = context.make_array(signature.args[0])(context, builder, arguments[0])
        width = builder.extract_value(held.shape, 1)
        index = builder.add(builder.mul(arguments[1], width), arguments[2])
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(builder.gep(held.data, [index]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        builder.call(function, [address, word(WRITE), word(KEEP), word(DATA)])
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


prefetch: Any = intrinsic(_prefetch)


BucketIndices = npt.NDArray[np.uint16]
"""The bucket index of each value."""

EPSILON = 1e-4
"""The weight below which a bucket is empty."""
MAX_HALF_LIVES = 100.0
"""The number of half-lives after which a row is scaled back."""
PAGE, SHIFT, MASK = 16, 4, 15
"""The number of buckets of a page (two cache lines), and the shift and mask that find it."""
CELLS = 64
"""The number of cells of the look-up table per doubling: so fine that no cell holds two edges."""
CELL_SHIFT = 52 - 6
FIRST_CELL = 1023 * CELLS
NO_BUCKET = 65535
"""The bucket of an implausible value."""


class Buckets(NamedTuple):
    """The mapping of values to buckets. A value is counted in whole units, as in the VPA recommender."""

    units: float
    """The number of units of a core or a byte."""
    scale: float
    edges: Floats
    """The least number of units of each bucket, and infinity after the last."""
    ends: Floats
    """The value of a percentile in each bucket, in cores or bytes: the end of the bucket."""
    cells: BucketIndices


def build_exponential_buckets(*, first: float, growth: float, most: float, units: float) -> Buckets:
    """Return buckets that start at 0, the first `first` wide, each wider by `growth`, the last from `most`
    on.
    """
    ratio = 1.0 + growth
    step = ratio - 1.0
    count = math.ceil(math.log(most * step / first + 1.0) / math.log(ratio)) + 1
    starts = [first * (_power(ratio, k) - 1.0) / step for k in range(count)]

    def bucket(value: float) -> int:
        return 0 if value < first else int(math.log(value * step / first + 1.0) / math.log(ratio))

    def edge(k: int) -> float:
        """Return the first unit of a bucket. Rounding may move it into the bucket below, so the recommender's
        formula decides.
        """
        around = math.floor(starts[k] * units)
        return next(float(a) for a in range(around - 1, around + 3) if bucket(a / units) >= k)

    edges = np.array([0.0, *map(edge, range(1, count)), math.inf])
    scale = step / (first * units)
    doublings = math.ceil(math.log2(edges[-2] * scale + 1.0))
    cell_starts = [
        math.ldexp(1.0 + cell / CELLS, doubling) for doubling in range(doublings) for cell in range(CELLS)
    ]
    # Slightly below each cell: rounding may put a value into the cell before its edge, and a look-up that is
    # too low is corrected by the comparison, one too high is not.
    below = np.searchsorted(edges * scale + 1.0, np.array(cell_starts) * (1.0 - 1e-9), side="right") - 1
    return Buckets(
        units, scale, edges, np.array([*starts[1:], starts[-1]]), np.maximum(below, 0).astype(np.uint16)
    )


def _power(base: float, exponent: int) -> float:
    """Compute a power by squaring, as Go does: the last bit of the C library's would move the end of a bucket
    by a byte.
    """
    power = 1.0
    while exponent:
        if exponent & 1:
            power *= base
        base *= base
        exponent >>= 1
    return power


def find_buckets(buckets: Buckets, values: Floats, most: float) -> BucketIndices:
    """Return the bucket of each value; NO_BUCKET for implausible ones."""
    found = np.empty(values.size, np.uint16)
    find_buckets_into(buckets, values, most, found)
    return found


class HistogramRows(NamedTuple):
    """The arrays of the histograms."""

    pages: npt.NDArray[np.int32]
    """The page of the pool that holds each sixteen buckets; page 0 stays empty and is shared."""
    pool: Floats
    used: npt.NDArray[np.int64]
    total: Floats
    low: BucketIndices
    """The first bucket that is not empty, or the last of all."""
    high: BucketIndices
    reference: Floats
    """The time at which the weight of a sample is 1; -inf before the first."""


@kernel(error_model="numpy")
def find_bucket(buckets: Buckets, amount: float) -> int:
    """Return the bucket of an amount in units: a look-up, and one comparison with the edge that may lie
    inside its cell.
    """
    cell = int(np.float64(amount * buckets.scale + 1.0).view(np.int64) >> CELL_SHIFT) - FIRST_CELL
    bucket = int(buckets.cells[min(cell, buckets.cells.size - 1)])
    return bucket + int(amount >= buckets.edges[bucket + 1])


@kernel(error_model="numpy")
def find_buckets_into(buckets: Buckets, values: Floats, most: float, found: BucketIndices) -> None:
    """Store the bucket of each value in `found`; NO_BUCKET for implausible ones."""
    units, scale, edges, cells = buckets.units, buckets.scale, buckets.edges, buckets.cells
    last = cells.size - 1
    for row in range(values.size):
        value = values[row]
        if 0.0 <= value <= most:
            amount = np.floor(value * units)
            cell = int(np.float64(amount * scale + 1.0).view(np.int64) >> CELL_SHIFT) - FIRST_CELL
            bucket = np.uint64(cells[np.uint64(min(cell, last))])
            found[row] = bucket + np.uint64(amount >= edges[bucket + np.uint64(1)])
        else:
            found[row] = NO_BUCKET


@kernel(error_model="numpy")
def trim_empty_buckets(rows: HistogramRows, row: int) -> None:
    """Skip empty buckets at both ends."""
    last = rows.pages.shape[1] * PAGE - 1
    low, high = int(rows.low[row]), int(rows.high[row])
    while low < last and rows.pool[rows.pages[row, low >> SHIFT], low & MASK] < EPSILON:
        low += 1
    while high > 0 and rows.pool[rows.pages[row, high >> SHIFT], high & MASK] < EPSILON:
        high -= 1
    rows.low[row], rows.high[row] = low, high


@kernel(error_model="numpy")
def move_reference(rows: HistogramRows, row: int, t: float, half_life: float) -> None:
    """Scale a row's weights back, so that those of `t` are near 1."""
    reference = math.floor(t / half_life + 0.5) * half_life
    if rows.total[row] > 0.0:
        # A whole power of two changes only the exponents, so that scaling loses no bits and percentiles stay
        # the recommender's.
        factor = 2.0 ** math.floor((rows.reference[row] - reference) / half_life + 0.5)
        for bucket in range(int(rows.low[row]), int(rows.high[row]) + 1):
            rows.pool[rows.pages[row, bucket >> SHIFT], bucket & MASK] *= factor
        rows.total[row] *= factor
        trim_empty_buckets(rows, row)
    rows.reference[row] = reference


@kernel(error_model="numpy")
def move_references(rows: HistogramRows, which: Indices, times: Floats, half_life: float) -> None:
    """Move the references of these rows if these times are too far from them."""
    for index in range(which.size):
        row, t = which[index], times[index]
        if t > rows.reference[row] + half_life * MAX_HALF_LIVES:
            move_reference(rows, row, t, half_life)


@kernel(error_model="numpy")
def is_empty(rows: HistogramRows, row: int) -> bool:
    low = int(rows.low[row])
    return bool(rows.pool[rows.pages[row, low >> SHIFT], low & MASK] < EPSILON)


@kernel(error_model="numpy")
def find_percentile_buckets(
    rows: HistogramRows, row: int, quantiles: tuple[float, float, float]
) -> tuple[int, int, int]:
    """Return the buckets of three ascending quantiles in one pass."""
    high = int(rows.high[row])
    bucket = int(rows.low[row])
    total = rows.total[row]
    lower, middle, upper = quantiles[0] * total, quantiles[1] * total, quantiles[2] * total
    sum_ = rows.pool[rows.pages[row, bucket >> SHIFT], bucket & MASK]
    while bucket < high and sum_ < lower:
        bucket += 1
        sum_ += rows.pool[rows.pages[row, bucket >> SHIFT], bucket & MASK]
    first = bucket
    while bucket < high and sum_ < middle:
        bucket += 1
        sum_ += rows.pool[rows.pages[row, bucket >> SHIFT], bucket & MASK]
    second = bucket
    while bucket < high and sum_ < upper:
        bucket += 1
        sum_ += rows.pool[rows.pages[row, bucket >> SHIFT], bucket & MASK]
    return first, second, bucket


@kernel(error_model="numpy")
def add_to_buckets(
    rows: HistogramRows, start: int, t: float, half_life: float, weight: float, found: BucketIndices
) -> int:
    """Add a sample to the bucket of each row; return the row at which references must move, or the pool must
    grow, first.
    """
    pages, pool, used, total = rows.pages, rows.pool, rows.used, rows.total
    low, high, references = rows.low, rows.high, rows.reference
    last = np.int64(pages.shape[1] - 1)
    reference, grown = math.nan, math.nan
    for row in range(start, found.size):
        later = min(row + PREFETCH_ROWS, found.size - 1)
        prefetch(pool, pages[later, min(np.int64(found[later]) >> SHIFT, last)], found[later] & MASK)
        bucket = found[row]
        if bucket == NO_BUCKET:
            continue
        # Most rows share a reference, so that the power is computed once for all of them.
        if references[row] != reference:
            reference = references[row]
            if t > reference + half_life * MAX_HALF_LIVES:
                return row
            grown = weight * 2.0 ** ((t - reference) / half_life)
        block, cell = np.uint64(bucket >> SHIFT), np.uint64(bucket & MASK)
        page = np.uint64(pages[row, block])
        if page == 0:
            if used[0] == pool.shape[0]:
                return row
            page = np.uint64(used[0])
            used[0] += 1
            pages[row, block] = page
        held = pool[page, cell] + grown
        pool[page, cell] = held
        total[row] += grown
        if held >= EPSILON:
            if bucket < low[row]:  # noqa: PLR1730 - a branch seldom taken is quicker than a store
                low[row] = bucket
            if bucket > high[row]:  # noqa: PLR1730
                high[row] = bucket
    return found.size


@kernel(error_model="numpy")
def replace_in_buckets(
    rows: HistogramRows,
    start: int,
    which: Indices,
    times: Floats,
    half_life: float,
    olds: BucketIndices,
    news: BucketIndices,
) -> int:
    """Remove a sample of weight 1 from the old bucket of each of these rows, if it has one, and add one to
    the new.
    """
    pages, pool, used, total = rows.pages, rows.pool, rows.used, rows.total
    low, high, references = rows.low, rows.high, rows.reference
    last = np.int64(pages.shape[1] - 1)
    age, weight = math.nan, math.nan
    for index in range(start, which.size):
        later = min(index + PREFETCH_ROWS, which.size - 1)
        prefetch(pool, pages[which[later], min(np.int64(news[later]) >> SHIFT, last)], news[later] & MASK)
        row, old, new = which[index], olds[index], news[index]
        if new == NO_BUCKET:
            continue
        page = pages[row, new >> SHIFT]
        if page == 0:
            if used[0] == pool.shape[0]:
                return index
            page = np.int32(used[0])
            used[0] += 1
            pages[row, new >> SHIFT] = page
        if times[index] - references[row] != age:
            age = times[index] - references[row]
            weight = 2.0 ** (age / half_life)
        if old != NO_BUCKET:
            before = pages[row, old >> SHIFT]
            left = pool[before, old & MASK] - weight
            # Subtraction leaves rounding errors: a bucket with a remainder would count as used, and a
            # percentile could end there.
            pool[before, old & MASK] = left if left >= EPSILON else 0.0
            left = total[row] - weight
            total[row] = left if left >= EPSILON else 0.0
        pool[page, new & MASK] += weight
        total[row] += weight
        if pool[page, new & MASK] >= EPSILON:
            low[row], high[row] = min(int(low[row]), int(new)), max(int(high[row]), int(new))
        # The removed sample may have left an end empty; checked last, the way to the next bucket is short.
        while low[row] < high[row] and pool[pages[row, low[row] >> SHIFT], low[row] & MASK] < EPSILON:
            low[row] += 1
        while high[row] > low[row] and pool[pages[row, high[row] >> SHIFT], high[row] & MASK] < EPSILON:
            high[row] -= 1
    return which.size


@kernel(error_model="numpy")
def compute_percentiles(
    rows: HistogramRows, buckets: Buckets, quantiles: tuple[float, float, float], answers: Floats
) -> None:
    for row in range(rows.total.size):
        if not is_empty(rows, row):
            first, second, third = find_percentile_buckets(rows, row, quantiles)
            answers[0, row] = buckets.ends[first]
            answers[1, row] = buckets.ends[second]
            answers[2, row] = buckets.ends[third]


class Histogram:
    """A decaying histogram for each row."""

    def __init__(self, rows: int, buckets: Buckets, half_life: float) -> None:
        pages = -(-buckets.ends.size // PAGE)
        self.buckets = buckets
        self.half_life = half_life
        self.rows = HistogramRows(
            pages=np.zeros((rows, pages), np.int32),
            pool=np.zeros((2 * rows + 2, PAGE)),
            used=np.ones(1, np.int64),
            total=np.zeros(rows),
            low=np.full(rows, pages * PAGE - 1, np.uint16),
            high=np.zeros(rows, np.uint16),
            reference=np.full(rows, -np.inf),
        )

    def _grow(self) -> None:
        pool = np.zeros((self.rows.pool.shape[0] * 5 // 4 + PAGE, PAGE))
        pool[: self.rows.pool.shape[0]] = self.rows.pool
        self.rows = self.rows._replace(pool=pool)

    def add(self, t: float, found: BucketIndices, weight: float = 1.0) -> None:
        """Add one sample per row, by the buckets that `find_buckets` returned."""
        row = 0
        while (row := add_to_buckets(self.rows, row, t, self.half_life, weight, found)) < found.size:
            late = np.flatnonzero(
                (t > self.rows.reference + self.half_life * MAX_HALF_LIVES) & (found != NO_BUCKET)
            )
            if late.size:
                move_references(self.rows, late, np.full(late.size, t), self.half_life)
            else:
                self._grow()

    def replace(self, which: Indices, times: Floats, olds: BucketIndices, news: BucketIndices) -> None:
        """Replace samples of these rows and times: remove the old ones, if any, and add the new."""
        move_references(self.rows, which, times, self.half_life)
        index = 0
        while (
            index := replace_in_buckets(self.rows, index, which, times, self.half_life, olds, news)
        ) < which.size:
            self._grow()

    def percentiles(self, quantiles: tuple[float, float, float]) -> Floats:
        """Return three ascending quantiles of each row; NaN for an empty one."""
        answers = np.full((3, self.rows.total.size), np.nan)
        compute_percentiles(self.rows, self.buckets, quantiles, answers)
        return answers

    def row_weights(self, row: int) -> Floats:
        """Return the weights of all buckets of one row."""
        whole: Floats = self.rows.pool[self.rows.pages[row]].ravel()[: self.buckets.ends.size]
        return whole

    def load_row(self, row: int, weights: Floats, *, total: float, reference: float) -> None:
        """Replace the weights of one row."""
        pages = np.zeros((self.rows.pages.shape[1], PAGE))
        pages.ravel()[: weights.size] = weights
        for block in np.flatnonzero(pages.any(axis=1) & (self.rows.pages[row] == 0)):
            if self.rows.used[0] == self.rows.pool.shape[0]:
                self._grow()
            self.rows.pages[row, block] = self.rows.used[0]
            self.rows.used[0] += 1
        held = self.rows.pages[row] > 0
        self.rows.pool[self.rows.pages[row][held]] = pages[held]
        full = np.flatnonzero(weights >= EPSILON)
        self.rows.low[row], self.rows.high[row] = (full[0], full[-1]) if full.size else (pages.size - 1, 0)
        self.rows.total[row] = total
        self.rows.reference[row] = reference

    def arrays(self, prefix: str) -> dict[str, Array]:
        """Return the arrays to store, under names with this prefix."""
        kept = self.rows._replace(pool=self.rows.pool[: int(self.rows.used[0])])
        return {prefix + name: array for name, array in kept._asdict().items()}

    def load_arrays(self, prefix: str, arrays: Mapping[str, Array]) -> None:
        """Load the arrays that `arrays` returned; raise ValueError for indices that a compiled loop would
        follow out of bounds.
        """
        rows = HistogramRows(**{name: arrays[prefix + name] for name in HistogramRows._fields})
        pool = rows.pool.shape[0]
        last = rows.pages.shape[1] * PAGE
        # Compiled code does not check bounds: a damaged state would read or overwrite foreign memory.
        if not (
            1 <= rows.used[0] == pool
            and rows.pages.min(initial=0) >= 0
            and rows.pages.max(initial=0) < pool
            and max(rows.low.max(initial=0), rows.high.max(initial=0)) < last
        ):
            raise ValueError(f"state: the pages of {prefix!r} are not in order")
        self.rows = rows
