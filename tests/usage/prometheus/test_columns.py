"""Test placing samples on a grid: duplicates are merged and incomplete edges of a run dropped."""

import numpy as np
import pytest

from trimtab.usage.prometheus.columns import SampleColumns, detect_ooms
from trimtab.usage.usage import Oom, PodContainer

WEB, DB = PodContainer("shop", "web", "app"), PodContainer("shop", "db", "app")
NAN = np.nan


def columns(**samples: list[float]) -> SampleColumns:
    found = SampleColumns(len(next(iter(samples.values()))), maximum=100)
    for name, values in samples.items():
        found[WEB if name == "web" else DB][:] = values
    return found


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        pytest.param([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], id="the grid's edges are no run's"),
        pytest.param([NAN, 2, 3, 4, NAN], [NAN, NAN, 3, NAN, NAN], id="both edges"),
        pytest.param([1, 2, NAN, 4, 5], [1, NAN, NAN, NAN, 5], id="a gap"),
        pytest.param([NAN, 2, 3, NAN, NAN], [NAN, 2, 3, NAN, NAN], id="a job that ran for a moment"),
        pytest.param([NAN] * 5, [NAN] * 5, id="nothing"),
    ],
)
def test_drop_edges_keeps_runs_that_are_only_edges(given: list[float], kept: list[float]) -> None:
    found = columns(web=given)
    found.drop_edges(1)
    np.testing.assert_array_equal(found[WEB], kept)


def test_add_samples_merges_duplicates() -> None:
    found = SampleColumns(3, maximum=100)
    for _ in range(2):
        found.add_samples([WEB], np.array([0, 0, 0]), np.array([2, 0, 0]), np.array([7.0, 1.0, 3.0]))
    found.add_samples([WEB, DB], np.array([1]), np.array([1]), np.array([101.0]))
    np.testing.assert_array_equal(found.take_grid([DB, WEB]), [[NAN, 3], [NAN, NAN], [NAN, 7]])


def test_add_samples_grows_beyond_expected_containers() -> None:
    names = [PodContainer("shop", f"web-{number}", "app") for number in range(1000)]
    found = SampleColumns(2, maximum=1e6, expected=10)
    for name in names:
        found.add_samples([name], np.array([0]), np.array([1]), np.array([float(name.pod[4:])]))
    np.testing.assert_array_equal(found.take_grid(names), [[NAN] * 1000, range(1000)])


def test_add_rows_matches_add_samples_for_many_containers() -> None:
    names = [PodContainer("shop", f"web-{number}", "app") for number in range(1000)]
    found = SampleColumns(3, maximum=1e6, expected=10)
    found.add_rows([*names, *names], 1, np.array([[NAN, number % 1000] for number in range(2000)]))
    found.add_rows([names[0], DB], 0, np.array([[5.0, -1.0, 1e7], [NAN, -1.0, NAN]]))
    assert DB not in found.containers
    np.testing.assert_array_equal(found.take_grid(names), [[5] + [NAN] * 999, [NAN] * 1000, range(1000)])


def test_sample_columns_omit_containers_without_samples() -> None:
    found = SampleColumns(2, maximum=100)
    found.add_samples([WEB, DB], np.array([1]), np.array([0]), np.array([1.0]))
    assert found.containers == {DB}


def test_detect_ooms_reports_each_kill_once() -> None:
    seen = columns(web=[NAN, 1, 1, NAN, NAN, NAN, 1, 1], db=[NAN] * 8)
    times = {"start": 100.0, "step": 10.0}
    assert detect_ooms(seen, **times, window=20.0, since=100.0) == (Oom(110.0, WEB), Oom(160.0, WEB))
    assert detect_ooms(seen, **times, window=40.0, since=100.0) == (Oom(110.0, WEB),)
    assert detect_ooms(seen, **times, window=20.0, since=120.0) == (Oom(160.0, WEB),), (
        "the first kill was reported before"
    )
