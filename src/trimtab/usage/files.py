"""Usage from files: parquet or CSV with a row a sample, laid onto a regular grid of time.

The columns are `series` (a container's name), `t_seconds`, and one each or both of `cpu_cores | cpu_fraction` and
`mem_bytes | mem_fraction`; others are passed over. Days on which nobody has a sample are left out, so that two
recordings that lie years apart in one file do not make an array of years; the time of day stays what it was.

A fraction is taken of a machine of one core and 16 GiB. Left out: the formats of the public archives.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trimtab.errors import TrimtabError
from trimtab.usage.trace import Floats, Trace

DAY = 86400.0
CPU = ("cpu_cores", "cpu_fraction")
MEMORY = ("mem_bytes", "mem_fraction")
UNITS = {"mem_fraction": 16 * 2.0**30}
FINEST = 15.0
"""Seconds: what comes closer together is of one step."""

Columns = dict[str, npt.NDArray[np.float64]]
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows as they stand in a file: which series each is of, and the columns of numbers that we know."""

    names: tuple[str, ...]
    codes: Codes
    columns: Columns


def read(path: Path, *, step: float | None = None) -> Trace:
    """The trace in a file, or in the one such file of a folder. The step is the usual one of the file if not given."""
    path = _file(path)
    table = _parquet(path) if path.suffix == ".parquet" else _csv(path)
    if not {*CPU, *MEMORY} & table.columns.keys():
        raise TrimtabError(f"{path}: has no usage; a column must be one of {', '.join(CPU + MEMORY)}")
    if not len(table.codes):
        raise TrimtabError(f"{path}: has no rows")
    return _gridded(table, step)


def _file(path: Path) -> Path:
    if path.is_dir():
        found = sorted(path.glob("*.parquet")) or sorted(
            file for file in path.glob("*.csv") if file.name != "series_meta.csv"
        )
        if len(found) != 1:
            raise TrimtabError(f"{path}: holds {len(found)} usage files; name the one to read")
        return found[0]
    if not path.exists():
        raise TrimtabError(f"{path}: there is no such file")
    if path.suffix not in {".parquet", ".csv"}:
        raise TrimtabError(f"{path}: is neither .parquet nor .csv")
    return path


def _wanted(names: Iterable[str], path: Path) -> list[str]:
    present = list(names)
    for needed in ("series", "t_seconds"):
        if needed not in present:
            raise TrimtabError(f"{path}: has no column {needed}; it has: {', '.join(present)}")
    usage = [next((name for name in options if name in present), None) for options in (CPU, MEMORY)]
    return ["series", "t_seconds", *(name for name in usage if name)]


def _parquet(path: Path) -> Table:
    try:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq
    except ImportError:
        raise TrimtabError(f"{path}: reading parquet needs pyarrow: pip install 'trimtab[parquet]'") from None
    try:
        with pq.ParquetFile(path) as file:
            wanted = _wanted(file.schema_arrow.names, path)
            rows = file.read(columns=wanted)
    except (pa.ArrowInvalid, OSError) as error:
        raise TrimtabError(f"{path}: is not a parquet file that can be read: {error}") from None
    series = rows["series"].combine_chunks()
    if not pa.types.is_dictionary(series.type):
        series = pc.dictionary_encode(series)
    codes, names = _dense(series.indices.to_numpy().astype(np.int64), series.dictionary.to_pylist())
    columns = {name: rows[name].to_numpy().astype(np.float64) for name in wanted if name != "series"}
    return Table(names, codes, columns)


def _csv(path: Path) -> Table:
    codes: list[int] = []
    index: dict[str, int] = {}
    with path.open(newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        wanted = _wanted(header, path)
        places = [header.index(name) for name in wanted]
        numbers: list[list[float]] = [[] for _ in wanted[1:]]
        for line, row in enumerate(reader, start=2):
            try:
                codes.append(index.setdefault(row[places[0]], len(index)))
                for place, column in zip(places[1:], numbers, strict=True):
                    column.append(float(row[place] or "nan"))
            except (ValueError, IndexError):
                raise TrimtabError(
                    f"{path}: line {line} is not {', '.join(wanted)}: {','.join(row)}"
                ) from None
    columns = {name: np.array(column) for name, column in zip(wanted[1:], numbers, strict=True)}
    return Table(tuple(index), np.array(codes, np.int64), columns)


def _dense(codes: Codes, names: list[str]) -> tuple[Codes, tuple[str, ...]]:
    """Codes of the series that have rows only: a dictionary may name many more."""
    used, dense = np.unique(codes, return_inverse=True)
    return dense.astype(np.int64), tuple(str(names[code]) for code in used)


def _gridded(table: Table, step: float | None) -> Trace:
    seconds, codes = table.columns["t_seconds"], table.codes
    width = step or _usual_step(codes, seconds)
    day = np.floor(seconds / DAY)
    days, nth_day = np.unique(day, return_inverse=True)
    rows = np.floor((seconds - day * DAY + (days[0] + nth_day) * DAY) / width).astype(np.int64)
    first = int(rows.min())
    rows -= first
    shape = (int(rows.max()) + 1, len(table.names))
    cpu, memory = (_laid(table.columns, options, rows, codes, shape) for options in (CPU, MEMORY))
    return Trace(names=table.names, start=first * width, step=width, cpu=cpu, memory=memory)


def _usual_step(codes: Codes, seconds: Floats) -> float:
    """The median distance of two samples of one series, to the second."""
    order = np.lexsort((seconds, codes))
    apart = np.diff(seconds[order])[np.diff(codes[order]) == 0]
    apart = apart[apart > 0]
    return max(FINEST, float(np.round(np.median(apart)))) if len(apart) else 60.0


def _laid(
    columns: Columns, options: tuple[str, str], rows: Codes, codes: Codes, shape: tuple[int, int]
) -> Floats:
    """The highest of the samples that fall on one step: a step too wide must not hide a peak."""
    grid = np.full(shape, np.nan)
    name = next((name for name in options if name in columns), None)
    if name is not None:
        np.fmax.at(grid, (rows, codes), columns[name] * UNITS.get(name, 1.0))
    return grid
