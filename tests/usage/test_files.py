"""Test reading usage files into arrays with NaN for gaps."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab.errors import TrimtabError
from trimtab.usage.files import read_trace

DAY = 86400


def csv(path: Path, text: str) -> Path:
    file = path / "usage.csv"
    file.write_text(text)
    return file


def test_read_trace_returns_column_per_series(tmp_path: Path) -> None:
    trace = read_trace(
        csv(
            tmp_path,
            "series,t_seconds,cpu_cores,mem_bytes\na,0,1,10\nb,0,2,20\na,60,3,30\nb,120,4,\na,120,5,50\n",
        )
    )
    assert trace.names == ("a", "b")
    assert trace.step == 60
    np.testing.assert_array_equal(trace.cpu, [[1, 2], [3, np.nan], [5, 4]])
    np.testing.assert_array_equal(trace.memory, [[10, 20], [30, np.nan], [50, np.nan]])


def test_read_trace_reads_parquet_and_csv_alike(tmp_path: Path) -> None:
    columns = {"series": ["x", "y", "x"], "t_seconds": [0, 300, 300], "cpu_fraction": [0.1, 0.2, 0.3]}
    pq.write_table(pa.table(columns), tmp_path / "one.parquet")
    pq.write_table(
        pa.table({**columns, "series": pa.array(columns["series"]).dictionary_encode()}),
        tmp_path / "two.parquet",
    )
    text = csv(tmp_path, "t_seconds,other,series,cpu_fraction\n0,a,x,0.1\n300,b,y,0.2\n300,c,x,0.3\n")
    for file in (tmp_path / "one.parquet", tmp_path / "two.parquet", text):
        trace = read_trace(file)
        assert trace.names == ("x", "y")
        np.testing.assert_allclose(trace.cpu, [[0.1, np.nan], [0.3, 0.2]])
        assert np.isnan(trace.memory).all()
        assert trace.sample_count == 3


def test_read_trace_keeps_maximum_of_step(tmp_path: Path) -> None:
    file = csv(tmp_path, "series,t_seconds,cpu_cores\na,0,1\na,10,7\na,20,2\na,60,3\n")
    np.testing.assert_array_equal(read_trace(file, step=60).cpu[:, 0], [7, 3])


def test_read_trace_skips_empty_days_and_keeps_time_of_day(tmp_path: Path) -> None:
    rows = [(3600 + 60 * i, 1) for i in range(3)] + [(1000 * DAY + 7200 + 60 * i, 2) for i in range(3)]
    file = csv(tmp_path, "series,t_seconds,cpu_cores\n" + "".join(f"a,{t},{v}\n" for t, v in rows))
    trace = read_trace(file)
    assert trace.start == 3600
    assert trace.steps == (DAY + 3600) // 60 + 3
    assert trace.cpu[-1, 0] == 2


def test_read_trace_scales_memory_fraction_to_16_gib(tmp_path: Path) -> None:
    assert read_trace(csv(tmp_path, "series,t_seconds,mem_fraction\na,0,0.5\n")).memory[0, 0] == 8 * 2**30


def test_read_trace_finds_single_file_of_folder(tmp_path: Path) -> None:
    csv(tmp_path, "series,t_seconds,cpu_cores\na,0,1\n")
    (tmp_path / "series_meta.csv").write_text("series\na\n")
    assert read_trace(tmp_path).container_count == 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "series,cpu_cores\na,1\n",
            "column t_seconds is missing (required: series, t_seconds; found: series, cpu_cores); see",
        ),
        ("series,t_seconds,value\na,1,2\n", "no usage column was found; add one of cpu_cores,"),
        (
            "series,t_seconds,cpu_cores\na,0,1\na,60,many\n",
            "line 3 must contain series, t_seconds, cpu_cores, with plain numbers for t_seconds, cpu_cores: a,60,many",
        ),
        ("", "is empty"),
        ("series,t_seconds,cpu_cores\na,0,-1\na,60,NaN\na,120,1e300\n", "no usable sample: every CPU and"),
        ("series,t_seconds,cpu_cores\na,1700000000000,1\n", "the time 1700000000000 is not in seconds"),
        ("series,t_seconds,cpu_cores\na,-1e300,1\n", "the time -1e+300 is not in seconds"),
        ("series,t_seconds,cpu_cores\n", "has no rows"),
        ("series;t_seconds;cpu_cores\na;0;0,5\n", "; separate columns with commas and use decimal points"),
    ],
)
def test_read_trace_rejects_other_content_in_one_line(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(TrimtabError) as refused:
        read_trace(csv(tmp_path, text))
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_read_trace_ignores_blanks_after_commas(tmp_path: Path) -> None:
    trace = read_trace(csv(tmp_path, "series, t_seconds, cpu_cores\na, 0, 1\na, 60, 2\n"))
    np.testing.assert_array_equal(trace.cpu[:, 0], [1, 2])


def test_read_trace_rejects_text_other_than_utf_8(tmp_path: Path) -> None:
    (tmp_path / "usage.csv").write_text("series,t_seconds,cpu_cores\na,0,1\n", "utf-16")
    with pytest.raises(TrimtabError, match="the file is not UTF-8 text; convert it"):
        read_trace(tmp_path / "usage.csv")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_read_trace_reads_parquet_timestamps(tmp_path: Path, unit: str) -> None:
    times = pa.array([0, 60], pa.timestamp("s", "UTC")).cast(pa.timestamp(unit, "UTC"))
    table = pa.table({"series": ["a", "a"], "t_seconds": times, "cpu_cores": [1.0, 2.0]})
    pq.write_table(table, tmp_path / "usage.parquet", version="2.6")
    trace = read_trace(tmp_path / "usage.parquet")
    assert (trace.start, trace.step) == (0.0, 60.0)


@pytest.mark.parametrize(
    ("cpu", "kind"),
    [([[0.1]], "list<element: double>"), (["lots"], "string"), ([{"a": 1}], "struct<a: int64>")],
)
def test_read_trace_rejects_column_without_numbers(tmp_path: Path, cpu: list[object], kind: str) -> None:
    pq.write_table(
        pa.table({"series": ["a"], "t_seconds": [0], "cpu_cores": cpu}), tmp_path / "usage.parquet"
    )
    with pytest.raises(TrimtabError) as refused:
        read_trace(tmp_path / "usage.parquet")
    assert f"column cpu_cores must contain numbers, but has type {kind}" in str(refused.value)


def test_read_trace_rejects_path_without_usage_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "b.parquet").write_text("no")
    for path, line in (
        (tmp_path / "none.csv", "the file does not exist"),
        (tmp_path / (300 * "x"), r"cannot be read \(File name too long\)"),
        (tmp_path / "a.txt", "no .parquet, .csv or .json"),
        (tmp_path / "b.parquet", "the parquet file cannot be read"),
    ):
        with pytest.raises(TrimtabError, match=line):
            read_trace(path)


def test_read_trace_names_package_if_pyarrow_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.parquet").write_text("")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        TrimtabError, match=r"pyarrow is not installed; run: pip install 'trimtab\[parquet\]'"
    ):
        read_trace(tmp_path / "a.parquet")
