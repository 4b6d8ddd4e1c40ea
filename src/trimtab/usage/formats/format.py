"""The interface of a usage file format, which converts rows to series, seconds, cores and bytes.

Rows are read in blocks of a few thousand, as arrays, so that a file of any length never exists as Python
objects. Some archives publish usage as a share of a container's size and the sizes in another table; such a
format provides the sizes for the series that were found. That table may contain millions of entries that the
recording does not, so it is streamed and only the series at hand are kept.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from trimtab.errors import TrimtabError
from trimtab.usage.formats.file_parts import FilePart, find_parts_in_file
from trimtab.usage.trace import Floats

BLOCK_ROWS = 16_384
MISSING = "nan"
_OTHER_DELIMITERS = ";\t|"
"""Column delimiters that are recognized only to give a better error message."""

Row = Sequence[str]


@dataclass(frozen=True, slots=True)
class RowBlock:
    """A block of rows of a file."""

    names: Sequence[str]
    """The names of the series in this block."""
    codes: npt.NDArray[np.int64]
    """The index in `names` of each row's series."""
    seconds: Floats
    cpu: Floats | None = None
    """The CPU usage in cores, or as a share that `read_sizes` converts; None if the file has none."""
    memory: Floats | None = None


@dataclass(frozen=True, slots=True)
class SeriesSizes:
    """The size of each series, by which shares are multiplied; NaN where unknown."""

    cores: Floats
    bytes: Floats


@dataclass(frozen=True, slots=True)
class UsageFormat:
    """A supported file format."""

    name: str
    """The name for `--format`."""
    matches: Callable[[FilePart, Row], bool]
    """Decide by the column names, or by the first row if there is no header."""
    read_rows: Callable[[FilePart, IO[bytes]], Iterator[RowBlock]]
    read_sizes: Callable[[Path, Sequence[str]], SeriesSizes] | None = None


def encode_names(names: Sequence[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the distinct names in order of appearance, and the index of each row's name."""
    index: dict[str, int] = {}
    codes = np.fromiter((index.setdefault(name, len(index)) for name in names), np.int64, len(names))
    return list(index), codes


def read_csv(stream: IO[bytes], *, delimiter: str = ",") -> Iterator[list[str]]:
    with io.TextIOWrapper(stream, "utf-8-sig", newline="") as lines:
        yield from csv.reader(lines, delimiter=delimiter, skipinitialspace=True)


def locate_columns(part: FilePart, present: Sequence[str], wanted: Sequence[str]) -> dict[str, int]:
    """Return the positions of the wanted columns; raise if one is missing."""
    missing = next((name for name in wanted if name not in present), None)
    if not present:
        raise TrimtabError(f"{part}: the file is empty")
    if missing is not None:
        problem = f"{part}: column {missing} is missing (required: {', '.join(wanted)}; found: {', '.join(present)[:200]})"
        if len(present) == 1 and any(sign in present[0] for sign in _OTHER_DELIMITERS):
            raise TrimtabError(f"{problem}; separate columns with commas and use decimal points")
        raise TrimtabError(f"{problem}; see `trimtab backtest --help`")
    return {name: present.index(name) for name in wanted}


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """The columns that are read from a text table, and their types."""

    positions: Mapping[str, int]
    text_columns: tuple[str, ...]
    """The columns that are kept as text; all others contain numbers."""
    required_columns: tuple[str, ...]
    """The numeric columns that must have a value in every row."""

    def read_blocks(
        self, part: FilePart, reader: Iterator[list[str]], *, line: int = 1
    ) -> Iterator[dict[str, Any]]:
        """Yield blocks of rows, a list or an array per column; `line` is the line number of the first row."""
        pick = itemgetter(*self.positions.values())
        picked: list[Row] = []
        for number, row in enumerate(reader, start=line):
            if not row:
                continue
            try:
                picked.append(pick(row))
            except IndexError:
                raise self._row_error(part, number, row) from None
            if len(picked) == BLOCK_ROWS:
                yield self._parse_block(part, number, picked)
                picked.clear()
        if picked:
            yield self._parse_block(part, number, picked)

    def _parse_block(self, part: FilePart, last: int, picked: Sequence[Row]) -> dict[str, Any]:
        columns = zip(self.positions, zip(*picked, strict=True), strict=True)
        try:
            return {name: self._parse_column(name, column) for name, column in columns}
        except ValueError:
            # The invalid row is searched for only now, so that valid rows cost nothing.
            place = next(place for place, row in enumerate(picked) if not self._is_valid_row(row))
            raise self._row_error(part, last - len(picked) + 1 + place, picked[place]) from None

    def _parse_column(self, name: str, column: Row) -> Any:
        if name in self.text_columns:
            return column
        missing = "" if name in self.required_columns else MISSING
        return np.array([float(value or missing) for value in column])

    def _is_valid_row(self, row: Row) -> bool:
        try:
            for name, value in zip(self.positions, row, strict=True):
                self._parse_column(name, [value])
        except ValueError:
            return False
        return True

    def _row_error(self, part: FilePart, line: int, row: Row) -> TrimtabError:
        numbers = ", ".join(name for name in self.positions if name not in self.text_columns)
        return TrimtabError(
            f"{part}: line {line} must contain {', '.join(self.positions)}, with plain numbers for {numbers}: "
            f"{','.join(row)[:200]}"
        )


def read_meta_rows(
    path: Path, table: str, names: Sequence[str], *, layout: ColumnLayout
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield the rows of these series: the index of the name, and the layout's columns after the first."""
    part = _find_meta_file(path, table)
    index = {name: number for number, name in enumerate(names)}
    with part.open() as stream:
        for block in layout.read_blocks(part, read_csv(stream)):
            for name, *values in zip(*block.values(), strict=True):
                if (number := index.get(name)) is not None:
                    yield number, tuple(values)


def _find_meta_file(path: Path, table: str) -> FilePart:
    places = [
        *(sorted(path.rglob(f"{table}*")) if path.is_dir() else ()),
        *sorted(path.parent.glob(f"{table}*")),
    ]
    found = next((part for file in places if file.is_file() for part in find_parts_in_file(file)), None)
    if found is None:
        raise TrimtabError(
            f"{path}: {table}.csv is missing next to it; usage is a share of the sizes in that table"
        )
    return found
