"""Test decoding of samples: the fast path and the fallback return the same numbers."""

import json
import math

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trimtab.usage.errors import UsageResponseError
from trimtab.usage.prometheus.response import MatrixSeries, TimeGrid, decode_samples, first_sample

GRID = TimeGrid(1_700_000_000.0, 60.0, 50)


def format_go_float(value: float) -> str:
    """Format a number as Go does."""
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(str(value)) or repr(value)


@given(st.lists(st.floats(), max_size=50), st.sampled_from([(",", ":"), (", ", ": ")]))
@example([0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.30000000000000004, 123456789012345680.0], (",", ":"))
def test_decode_samples_reads_any_float(values: list[float], separators: tuple[str, str]) -> None:
    pairs = [[GRID.start + row * GRID.step, format_go_float(value)] for row, value in enumerate(values)]
    raw = json.dumps(pairs, separators=separators).encode().replace(b".0,", b",")
    _, rows, found = decode_samples([MatrixSeries(values=msgspec.Raw(raw))], GRID)
    np.testing.assert_array_equal(rows, np.arange(len(values)))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(values))
    for one, other in zip(found, values, strict=True):
        assert math.isnan(other) or one == other or abs(one - other) <= 2 * math.ulp(other)


@given(st.binary(max_size=12), st.integers(0, 60), st.integers(0, 12))
def test_decode_samples_rejects_damage_or_returns_rows_on_grid(put: bytes, where: int, instead: int) -> None:
    raw = b'[[1700000000,"0.25"],[1700000060,"1e-05"],[1700000120.0,"-3"]]'
    damaged = raw[:where] + put + raw[where + instead :]
    try:
        _, rows, values = decode_samples([MatrixSeries(values=msgspec.Raw(damaged))], GRID)
    except UsageResponseError:
        return
    assert len(rows) == len(values)
    assert all(0 <= row < GRID.steps for row in rows)


@given(st.lists(st.lists(st.floats(width=32), max_size=4), max_size=6))
@example([[], [math.inf, 1.0], [2.0]])
@example([])
def test_decode_samples_reads_many_series_at_once(all_values: list[list[float]]) -> None:
    texts = [
        json.dumps(
            [[int(GRID.start + row * GRID.step), format_go_float(value)] for row, value in enumerate(values)],
            separators=(",", ":"),
        )
        for values in all_values
    ]
    which, rows, found = decode_samples(
        [MatrixSeries(values=msgspec.Raw(text.encode())) for text in texts], GRID
    )
    places = [(place, row) for place, values in enumerate(all_values) for row in range(len(values))]
    assert list(zip(which, rows, strict=True)) == places
    np.testing.assert_allclose(found, [value for values in all_values for value in values])


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[",
        b"{}",
        b"[[]]",
        b"[[1700000000]]",
        b'[[1700000000,""]]',
        b'[["1700000000","1"]]',
        b'[[1700000000,"1","2"]]',
        b'[[1700000000,"1"],]',
        b'[[1700000000,"1"]',
        b'[[1700000000,"0x10"]]',
        b'[[1700000001,"1"]]',
        b'[[1600000000,"1"]]',
        b'[[NaN,"1"]]',
    ],
)
def test_decode_samples_rejects_malformed_pairs(raw: bytes) -> None:
    with pytest.raises(UsageResponseError):
        decode_samples([MatrixSeries(values=msgspec.Raw(raw))], GRID)


def test_first_sample_rejects_damage_and_returns_none_if_empty() -> None:
    assert first_sample(MatrixSeries(values=msgspec.Raw(b'[[1.5,"2.5"],[2.5,"3"]]'))) == 2.5
    assert first_sample(MatrixSeries()) is None
    for damaged in (b'[[1,"much"]]', b"[[1,2]]", b"{}"):
        with pytest.raises(UsageResponseError):
            first_sample(MatrixSeries(values=msgspec.Raw(damaged)))
