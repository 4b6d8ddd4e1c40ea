"""Rings, windows, what is forgotten and what outlives a restart."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.node.model import NODE, Metric, pod_subject
from trimtab.node.series import Ring, SeriesRetention, SeriesSnapshot, SeriesStore
from trimtab.node.series import store as bounds

POD = pod_subject("a")


def test_series_store_aggregates_only_half_full_windows() -> None:
    series = SeriesStore()
    for second in range(1000, 1149):
        series.now = second
        series.add(POD, Metric.CPU, 1.0, period=1.0)
        assert series.average(POD, Metric.CPU, 300) is None
        assert series.latest(POD, Metric.CPU) == 1.0
    series.now = 1149
    series.add(POD, Metric.CPU, 1.0, period=1.0)
    assert series.average(POD, Metric.CPU, 300) == 1.0


def test_series_store_drops_latest_sample_after_three_periods() -> None:
    series = SeriesStore(now=100.0)
    series.add(NODE, Metric.CPU, 2.0, period=1.0)
    series.now = 103.5
    assert series.latest(NODE, Metric.CPU) == 2.0
    series.now = 104.5
    assert series.latest(NODE, Metric.CPU) is None


def test_series_store_latest_sample_is_independent_of_window_length() -> None:
    """The long window of the report must not turn the strategies' samples into averages of minutes."""
    series = SeriesStore(SeriesRetention(node=86400, pods=86400), now=86400.0)
    for subject in (NODE, POD):
        for second in range(20):
            series.now = 86400.0 + second
            series.add(subject, Metric.MEMORY, float(second), period=1.0)
        assert series.latest(subject, Metric.MEMORY) == 19.0
        assert series.average(subject, Metric.MEMORY, 10) == 14.5
        series.now += 5
        assert series.latest(subject, Metric.MEMORY) is None


@given(
    values=st.lists(st.floats(0, 1e6, width=32), min_size=1, max_size=200),
    reported=st.sampled_from([10.0, 300.0, 3600.0, 86400.0, 604800.0]),
    later=st.sampled_from([300.0, 86400.0]),
    seconds=st.integers(1, 60),
)
def test_series_store_short_windows_are_independent_of_report_window(
    values: list[float], reported: float, later: float, seconds: int
) -> None:
    """Predictions and evictions are decided by them."""
    usual, other = SeriesStore(), SeriesStore(SeriesRetention(node=reported, pods=reported))
    for second, value in enumerate(values):
        for series in (usual, other):
            series.now = 1e6 + second
            series.add(POD, Metric.CPU, value, period=1.0)
        if second == len(values) // 2:
            other.set_retention(SeriesRetention(node=later, pods=later))
        assert other.spread(POD, Metric.CPU, seconds) == usual.spread(POD, Metric.CPU, seconds)


def test_series_store_keeps_a_minute_even_with_shorter_windows() -> None:
    series = SeriesStore(SeriesRetention(node=10, pods=10))
    for second in range(60):
        series.now = float(second)
        series.add(POD, Metric.CPU, 1.0, period=1.0)
    assert series.spread(POD, Metric.CPU, 60) is not None


def test_ring_ignores_gaps() -> None:
    ring = Ring(10, 1.0)
    ring.add(100, 1.0)
    ring.add(107, 3.0)
    assert ring.samples(10, 107) == [1.0, 3.0]
    ring.add(130, 5.0)
    assert ring.samples(2, 130) == [5.0]


def test_ring_restarts_when_the_clock_goes_back() -> None:
    ring = Ring(10, 1.0)
    for second in range(100, 110):
        ring.add(second, 1.0)
    ring.add(50, 7.0)
    assert ring.samples(2, 50) == [7.0]
    assert ring.samples(10, 50) is None


@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.floats(0, 2**40, width=32)), max_size=200, unique_by=lambda p: p[0]
    ),
    st.integers(1, 60),
    st.integers(1, 100),
)
def test_ring_window_equals_a_plain_list(samples: list[tuple[int, float]], cells: int, seconds: int) -> None:
    ring = Ring(cells, 1.0)
    samples.sort()
    for second, value in samples:
        ring.add(second, value)
    newest = samples[-1][0] if samples else 0
    for now in (newest, newest + 3):
        expected = [(t, v) for t, v in samples if t > now - seconds and t > newest - cells]
        enough = bool(expected) and newest - expected[0][0] + 1 >= seconds / 2
        assert ring.samples(seconds, now) == ([v for _, v in expected] if enough else None)


@given(st.lists(st.floats(0, 1e6, width=32), min_size=1, max_size=300))
def test_ring_percentiles_equal_numpy_nearest_rank(values: list[float]) -> None:
    series = SeriesStore(now=0.0)
    for second, value in enumerate(values):
        series.now = float(second)
        series.add(POD, Metric.CPU, value, period=1.0)
    spread = series.spread(POD, Metric.CPU, len(values))
    assert spread is not None
    assert spread.samples == len(values)
    for share, found in ((50, spread.p50), (90, spread.p90), (95, spread.p95), (99, spread.p99)):
        assert found == np.percentile(np.array(values), share, method="inverted_cdf")
    assert spread.avg == pytest.approx(math.fsum(values) / len(values), rel=1e-6)


def test_series_store_removes_series_without_new_samples() -> None:
    series = SeriesStore(SeriesRetention(node=1800, pods=300))
    series.add(POD, Metric.CPU, 1.0, period=1.0)
    series.add(NODE, Metric.CPU, 1.0, period=1.0)
    series.now = 299
    series.sweep()
    assert len(series) == 2
    series.now = 300
    series.sweep()
    assert len(series) == 1
    series.now = 1800
    series.sweep()
    assert len(series) == 0


def test_series_store_never_exceeds_its_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_SERIES", 10)
    series = SeriesStore()
    for number in range(20):
        series.add(pod_subject(str(number)), Metric.CPU, 1.0, period=1.0)
    assert (len(series), series.rejected) == (10, 10)


def test_ring_longer_window_uses_longer_cells() -> None:
    assert SeriesRetention(pods=86400).plan_cells(POD, 1.0) == (300, 288.0)
    assert SeriesRetention(pods=300).plan_cells(POD, 10.0) == (30, 10.0)


def test_series_store_keeps_samples_when_the_window_changes() -> None:
    series = SeriesStore(SeriesRetention(pods=100))
    for second in range(100):
        series.now = float(second)
        series.add(POD, Metric.CPU, float(second), period=1.0)
    series.set_retention(SeriesRetention(pods=200))
    assert series.average(POD, Metric.CPU, 100) == 49.5
    assert series.average(POD, Metric.CPU, 200) == 49.5
    series.set_retention(SeriesRetention(pods=10))
    assert series.average(POD, Metric.CPU, 10) == 94.5


def test_series_snapshot_restores_all_samples(tmp_path: Path) -> None:
    before = SeriesStore(now=1000.0)
    for second in range(1000, 1200):
        before.now = float(second)
        before.add(POD, Metric.CPU, second / 7, period=1.0)
        before.add(NODE, Metric.MEMORY, second * 1e6, period=1.0)
    size = SeriesSnapshot(tmp_path / "series").save(before, {"histograms": b"abc"})
    assert size == (tmp_path / "series").stat().st_size
    assert [file.name for file in tmp_path.iterdir()] == ["series"]

    after = SeriesStore(now=1210.0)
    assert SeriesSnapshot(tmp_path / "series").load(after) == {"histograms": b"abc"}
    before.now = 1210.0
    for subject, metric in ((POD, Metric.CPU), (NODE, Metric.MEMORY)):
        assert after.spread(subject, metric, 300) == before.spread(subject, metric, 300)


def test_series_snapshot_restores_a_long_window(tmp_path: Path) -> None:
    day = SeriesRetention(node=86400)
    before = SeriesStore(day)
    for minute in range(1440):
        before.now = minute * 60.0
        before.add(NODE, Metric.CPU, 1.0, period=1.0)
    SeriesSnapshot(tmp_path / "series").save(before, {})
    after = SeriesStore(now=before.now)
    SeriesSnapshot(tmp_path / "series").load(after)
    after.add(NODE, Metric.CPU, 1.0, period=1.0)
    after.set_retention(day)
    assert after.average(NODE, Metric.CPU, 86400) == 1.0
    after.set_retention(SeriesRetention())
    [(_, _, ring)] = after.rings()
    assert (ring.cells, ring.step) == (1800, 1.0)


def test_series_snapshot_restores_the_last_minute_beside_a_long_window(tmp_path: Path) -> None:
    day = SeriesRetention(pods=86400)
    before = SeriesStore(day)
    for second in range(1000, 1200):
        before.now = float(second)
        before.add(POD, Metric.CPU, float(second), period=1.0)
    SeriesSnapshot(tmp_path / "series").save(before, {})
    after = SeriesStore(now=before.now)
    SeriesSnapshot(tmp_path / "series").load(after)
    assert len(after) == 1
    after.set_retention(day)
    assert after.spread(POD, Metric.CPU, 60) == before.spread(POD, Metric.CPU, 60)


def test_series_snapshot_skips_samples_that_are_too_old(tmp_path: Path) -> None:
    before = SeriesStore(now=1000.0)
    before.add(POD, Metric.CPU, 1.0, period=1.0)
    SeriesSnapshot(tmp_path / "series").save(before, {})
    after = SeriesStore(now=5000.0)
    SeriesSnapshot(tmp_path / "series").load(after)
    assert len(after) == 0


@pytest.mark.parametrize("harm", ["cut", "foreign", "empty", "folder", "absent"])
def test_series_snapshot_ignores_an_unreadable_file(tmp_path: Path, harm: str) -> None:
    before = SeriesStore(now=1000.0)
    before.add(POD, Metric.CPU, 1.0, period=1.0)
    file = tmp_path / "series"
    SeriesSnapshot(file).save(before, {"a": b"b"})
    content = file.read_bytes()
    if harm in {"folder", "absent"}:
        file.unlink()
    if harm == "folder":
        file.mkdir()
    elif harm != "absent":
        file.write_bytes({"cut": content[:-3], "foreign": b"\x00" * 500, "empty": b""}[harm])
    assert SeriesSnapshot(file).load(SeriesStore(now=1001.0)) == {}
