"""The histogram in pages is the recommender's histogram: each bucket, each percentile."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.sizing.stats.histogram import (
    NO_BUCKET,
    Buckets,
    Histogram,
    build_exponential_buckets,
    find_bucket,
    find_buckets,
)
from trimtab.sizing.strategies.vpa import CPU_BUCKETS, MEMORY_BUCKETS

DAY = 86400.0
KINDS = [(CPU_BUCKETS, 0.01), (MEMORY_BUCKETS, 1e7)]
QUANTILES = (0.5, 0.9, 0.95)


def by_logarithm(value: float, first: float) -> int:
    """The recommender's formula."""
    step = 1.05 - 1.0
    return 0 if value < first else min(int(math.log(value * step / first + 1.0) / math.log(1.05)), 175)


def test_cpu_buckets_grow_by_a_twentieth_and_number_176() -> None:
    for buckets, first in KINDS:
        assert buckets.ends.size == 176
        widths = np.diff(buckets.ends[:-1])
        np.testing.assert_allclose(widths[1:] / widths[:-1], 1.05, rtol=1e-9)
        assert buckets.ends[0] == first


@settings(max_examples=500)
@given(st.sampled_from(KINDS), st.floats(0.0, 1.3), st.sampled_from([-1, 0, 1]))
def test_bucket_lookup_matches_the_formula(kind: tuple[Buckets, float], place: float, beside: int) -> None:
    buckets, first = kind
    edge = float(buckets.ends[min(int(place * 175), 175)])
    for units in (
        max(math.floor(edge * buckets.units) + beside, 0),
        math.floor(first * buckets.units * 1.05 ** (place * 175)),
    ):
        assert find_bucket(buckets, float(units)) == by_logarithm(units / buckets.units, first)


def test_implausible_samples_are_in_no_bucket() -> None:
    values = np.array([np.nan, np.inf, -np.inf, -1e-9, 1e6, 0.0, 0.5])
    found = find_buckets(CPU_BUCKETS, values, 1e5)
    assert (found[:5] == NO_BUCKET).all()
    assert found[5:].tolist() == [0, by_logarithm(0.5, 0.01)]


class Plain:
    """A plain reference of one row."""

    def __init__(self, half_life: float) -> None:
        self.samples: list[tuple[float, int]] = []
        self.half_life = half_life

    def quantile_bucket(self, quantile: float) -> int:
        newest = max(t for t, _ in self.samples)
        weights = np.zeros(176)
        for t, bucket in self.samples:
            weights[bucket] += 2.0 ** ((t - newest) / self.half_life)
        return int(np.flatnonzero(weights.cumsum() >= quantile * weights.sum())[0])


@settings(max_examples=100)
@given(st.integers(0, 2**32), st.integers(1, 60), st.floats(60.0, 8 * DAY), st.floats(0.01, 3.0))
def test_histogram_percentiles_match_age_weighted_samples(
    seed: int, count: int, step: float, spread: float
) -> None:
    rng = np.random.default_rng(seed)
    histogram, plain = Histogram(3, CPU_BUCKETS, DAY), Plain(DAY)
    for place in range(count):
        values = rng.lognormal(-1, spread, 3)
        found = find_buckets(CPU_BUCKETS, values, 1e5)
        histogram.add(place * step, found, 0.1)
        plain.samples.append((place * step, int(found[1])))
    answers = histogram.percentiles(QUANTILES)[:, 1]
    for quantile, answer in zip(QUANTILES, answers, strict=True):
        # The recommender forgets what weighs less than a thousandth of a sample; ties are settled by the last bit.
        near = {plain.quantile_bucket(quantile + nudge) for nudge in (-1e-3, -1e-9, 0.0, 1e-9, 1e-3)}
        assert answer in CPU_BUCKETS.ends[sorted(near)]


def test_histogram_pool_grows_and_keeps_its_content() -> None:
    histogram = Histogram(50, CPU_BUCKETS, DAY)
    before = histogram.rows.pool.shape[0]
    for place, cores in enumerate(np.geomspace(0.01, 900, 176)):
        histogram.add(place * 60.0, find_buckets(CPU_BUCKETS, np.full(50, cores), 1e5))
    assert histogram.rows.pool.shape[0] > before
    sums = np.array([histogram.row_weights(row).sum() for row in range(50)])
    np.testing.assert_allclose(sums, histogram.rows.total)


def test_histogram_row_can_be_set_directly() -> None:
    histogram = Histogram(2, MEMORY_BUCKETS, DAY)
    weights = np.zeros(176)
    weights[[3, 90, 175]] = 1.0, 2.0, 0.5
    histogram.load_row(1, weights, total=3.5, reference=5 * DAY)
    np.testing.assert_array_equal(histogram.row_weights(1), weights)
    low, middle, high = histogram.percentiles((0.1, 0.5, 1.0))[:, 1]
    assert [low, middle, high] == MEMORY_BUCKETS.ends[[3, 90, 175]].tolist()
    assert np.isnan(histogram.percentiles((0.1, 0.5, 1.0))[:, 0]).all()


def test_histogram_rejects_state_with_invalid_pages() -> None:
    histogram = Histogram(2, CPU_BUCKETS, DAY)
    histogram.add(0.0, find_buckets(CPU_BUCKETS, np.ones(2), 1e5))
    for name, value in (("pages", 99), ("pages", -1), ("low", 999), ("used", 7)):
        arrays: dict[str, npt.NDArray[Any]] = {
            key: array.copy() for key, array in histogram.arrays("cpu.").items()
        }
        arrays["cpu." + name].flat[0] = value
        with pytest.raises(ValueError, match="not in order"):
            Histogram(2, CPU_BUCKETS, DAY).load_arrays("cpu.", arrays)


def test_histogram_supports_finer_buckets() -> None:
    fine = build_exponential_buckets(first=1e-5, growth=0.02, most=1e3, units=1e7)
    values = np.geomspace(1e-4, 1e3, 1000)
    ends = fine.ends[find_buckets(fine, values, 1e5)]
    assert (ends >= values * 0.999).all()
    assert (ends[:-1] <= values[:-1] * 1.02 + 1.1e-5).all()
