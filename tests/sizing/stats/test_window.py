"""A window gives quantiles within what it promises, and forgets what is older."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.sizing.stats.histogram import Buckets
from trimtab.sizing.stats.window import CPU_BUCKETS, MEMORY_BUCKETS, RollingWindow

QUANTILES = (0.0, 0.01, 0.5, 0.9, 0.99, 1.0)


@settings(max_examples=100)
@given(
    st.sampled_from([(CPU_BUCKETS, 1e-5), (MEMORY_BUCKETS, 1e4)]),
    st.integers(1, 200),
    st.floats(0, 6),
    st.integers(0, 2**32),
)
def test_window_quantile_is_accurate_to_one_percent(
    kind: tuple[Buckets, float], count: int, spread: float, seed: int
) -> None:
    buckets, first = kind
    values = first * 1e4 * np.random.default_rng(seed).lognormal(0, spread, (count, 2)).clip(1e-4, 1e3)
    window = RollingWindow(2, buckets, seconds=1000.0, slices=5)
    for t, sample in enumerate(values):
        window.add(float(t), sample)
    exact = np.quantile(values, QUANTILES, axis=0, method="inverted_cdf")
    found = window.quantiles(float(count), *QUANTILES)
    assert (np.abs(found - exact) <= 0.01 * exact + first / 2).all()
    assert (window.peak(float(count)) == values.max(axis=0)).all()
    assert (window.sample_counts(float(count)) == count).all()


def test_window_forgets_older_samples() -> None:
    window = RollingWindow(1, CPU_BUCKETS, seconds=100.0, slices=10)
    window.add(0.0, np.array([9.0]))
    for t in range(10, 300, 10):
        window.add(float(t), np.array([1.0]))
        assert (window.peak(float(t)) == 9.0) == (t < 100)
    assert window.sample_counts(290.0) == 10
    assert window.quantiles(290.0, 1.0) == pytest.approx(1.0, rel=0.01)
    assert np.isnan(window.quantiles(1000.0, 0.5)).all()


def test_window_ignores_samples_that_arrive_too_late() -> None:
    window = RollingWindow(1, CPU_BUCKETS, seconds=100.0, slices=10)
    for t in range(200, 300, 10):
        window.add(float(t), np.array([1.0]))
    for t in range(0, 200, 10):
        window.add(float(t), np.array([9.0]))
    assert window.sample_counts(290.0) == 10
    assert window.peak(290.0) == 1.0


def test_window_pool_grows_with_the_buckets_in_use() -> None:
    window = RollingWindow(1, CPU_BUCKETS, seconds=1e6, slices=2)
    values = np.geomspace(1e-4, 900, 400)
    for t, value in enumerate(values):
        window.add(float(t), np.array([value]))
    assert window.quantiles(400.0, 0.5) == pytest.approx(values[199], rel=0.01)
