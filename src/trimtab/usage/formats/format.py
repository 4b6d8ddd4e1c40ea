"""What a format of usage files is: how its rows are known, and how they become series, seconds, cores and bytes.

Rows come in blocks of some thousands, as arrays: a file of any length is never in memory as Python objects. Some
archives give usage as a share of what a container has, and that in another table: such a format names the sizes
afterwards, for the series that there were.
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
from trimtab.usage.formats.file_parts import FilePart
from trimtab.usage.trace import Floats

BLOCK_ROWS = 16_384
GIB = 2.0**30
MISSING = "nan"
_OTHER_DELIMITERS = ";\t|"
"""That some put between columns."""

Row = Sequence[str]


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Some rows of a file."""

    names: Sequence[str]
    """The series among them."""
    codes: npt.NDArray[np.int64]
    """Which of the names each row is of."""
    seconds: Floats
    cpu: Floats | None = None
    """Cores, or the share that `Format.sizes` makes cores of; None where the file has none."""
    memory: Floats | None = None


@dataclass(frozen=True, slots=True)
class SeriesSizes:
    """What each series has, to multiply its shares by; NaN where it is not known."""

    cores: Floats
    bytes: Floats


@dataclass(frozen=True, slots=True)
class UsageFormat:
    """One way in which usage is published."""

    name: str
    """What `--format` calls it."""
    matches: Callable[[FilePart, Row], bool]
    """Whether a part is of this format, by its columns: their names, or the first row where it has no head."""
    read_rows: Callable[[FilePart, IO[bytes]], Iterator[RowBlock]]
    read_sizes: Callable[[Path, Sequence[str]], SeriesSizes] | None = None


def encode_names(names: Sequence[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The names that there are, in the order of their first row, and which each row has."""
    index: dict[str, int] = {}
    codes = np.fromiter((index.setdefault(name, len(index)) for name in names), np.int64, len(names))
    return list(index), codes


def read_csv(stream: IO[bytes], *, delimiter: str = ",") -> Iterator[list[str]]:
    with io.TextIOWrapper(stream, "utf-8-sig", newline="") as lines:
        yield from csv.reader(lines, delimiter=delimiter, skipinitialspace=True)


def locate_columns(part: FilePart, present: Sequence[str], wanted: Sequence[str]) -> dict[str, int]:
    """Where the wanted columns are among those that there are; a clear refusal where one is not."""
    missing = next((name for name in wanted if name not in present), None)
    if not present:
        raise TrimtabError(f"{part}: is empty")
    if missing is not None:
        has = f"{part}: has no column {missing} of {', '.join(wanted)}; it has: {', '.join(present)[:200]}"
        if len(present) == 1 and any(sign in present[0] for sign in _OTHER_DELIMITERS):
            raise TrimtabError(f"{has}; put commas between columns, and points into numbers")
        raise TrimtabError(f"{has}; see `trimtab backtest --help`")
    return {name: present.index(name) for name in wanted}


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """Which columns of a table of text are read, and what they hold."""

    positions: Mapping[str, int]
    text_columns: tuple[str, ...]
    """Those that are read as they are; the others hold numbers."""
    required_columns: tuple[str, ...]
    """Numbers that no row may lack."""

    def read_blocks(
        self, part: FilePart, reader: Iterator[list[str]], *, line: int = 1
    ) -> Iterator[dict[str, Any]]:
        """A block of rows at a time, a list or an array for each column; `line` is the line of the first row."""
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
            # Which row it was is looked for only now, so that good rows cost nothing.
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
            f"{part}: line {line} is not {', '.join(self.positions)}, with plain numbers for {numbers}: "
            f"{','.join(row)[:200]}"
        )
