"""Read usage files of any supported format onto a regular time grid.

Days without any sample are left out, so that two recordings years apart in one file do not allocate years of
empty steps; the time of day is preserved. Of several samples in one step the highest is kept, because a step
that is too wide must not hide a peak.
"""

from __future__ import annotations

import csv
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from trimtab.errors import TrimtabError
from trimtab.usage import formats
from trimtab.usage.formats.file_parts import FilePart, find_parts
from trimtab.usage.formats.format import RowBlock, UsageFormat
from trimtab.usage.trace import Floats, Trace
from trimtab.usage.usage import MAX_BYTES, MAX_CORES, mask_implausible

DAY = 86400.0
MIN_STEP = 15.0
"""The shortest step in seconds; samples closer together share a step."""
MAX_TIME = 1e11
"""The latest plausible time in seconds (the year 5138); a later time is in a smaller unit."""
MAX_CELLS = 2**30
"""The maximum number of cells of a grid: 8 GiB per resource."""

N = TypeVar("N", bound=np.generic)
Codes = npt.NDArray[np.int64]
Progress = Callable[[float], None]
"""A callback that receives the share of the input read so far, 0 to 1."""


@dataclass(slots=True)
class RecordingTable:
    """All rows of a recording: the series index and the values of each row."""

    names: tuple[str, ...]
    codes: Codes
    seconds: Floats
    cpu: Floats
    memory: Floats


def read_trace(
    path: Path, *, format_name: str | None = None, step: float | None = None, progress: Progress | None = None
) -> Trace:
    """Return the trace in a file, an archive or a folder.

    The format is detected by its columns, and the step is the usual distance of two samples, unless they are
    given.
    """
    matching, chosen = _detect_format(path, None if format_name is None else formats.get_format(format_name))
    blocks = _read_blocks(matching, chosen, progress)
    first = next(blocks, None)
    if first is None:
        raise TrimtabError(f"{path}: the file has no rows; check that it is the right file")
    table = _collect_rows(chain([first], blocks))
    if matching.read_sizes is not None:
        with _wrap_read_errors(path):
            sizes = matching.read_sizes(path, table.names)
        table.cpu *= sizes.cores[table.codes]
        table.memory *= sizes.bytes[table.codes]
    table.cpu, table.memory = (
        mask_implausible(table.cpu, maximum=MAX_CORES),
        mask_implausible(table.memory, maximum=MAX_BYTES),
    )
    if np.isnan(table.cpu).all() and np.isnan(table.memory).all():
        raise TrimtabError(
            f"{path}: no usable sample: every CPU and memory value is missing, negative or implausibly large; "
            "check the units of its columns"
        )
    return _build_trace(path, table, step)


def _detect_format(path: Path, form: UsageFormat | None) -> tuple[UsageFormat, list[FilePart]]:
    """Return the format and the parts that have it; a folder may contain other tables as well."""
    parts = find_parts(path)
    if form is not None and len(parts) == 1:
        return form, parts
    matching: dict[str, list[FilePart]] = {}
    for part in parts:
        with _wrap_read_errors(part):
            found = formats.detect_format(part)
        if found is not None and form in {None, found}:
            matching.setdefault(found.name, []).append(part)
    if len(matching) > 1:
        raise TrimtabError(
            f"{path}: contains usage in several formats ({', '.join(matching)}); choose one with --format"
        )
    if matching:
        return formats.get_format(next(iter(matching))), next(iter(matching.values()))
    if form is not None:
        raise TrimtabError(f"{path}: contains no usage in the format {form.name}; check --format")
    if len(parts) == 1:
        return formats.trimtab_format.FORMAT, parts  # its reader reports the missing columns
    raise TrimtabError(
        f"{path}: contains no usage in a known format; supported: {', '.join(formats.FORMATS)}"
    )


def _read_blocks(
    form: UsageFormat, chosen: Sequence[FilePart], progress: Progress | None
) -> Iterator[RowBlock]:
    total, done = max(1, sum(part.path.stat().st_size for part in chosen)), 0

    def count(read: int) -> None:
        nonlocal done
        done += read

    for part in chosen:
        with _wrap_read_errors(part), part.open(count) as stream:
            for rows in form.read_rows(part, stream):
                if not np.isfinite(rows.seconds).all():
                    raise TrimtabError(f"{part}: a row has no time; every row needs one")
                latest = rows.seconds[np.abs(rows.seconds).argmax()] if len(rows.seconds) else 0.0
                if abs(latest) > MAX_TIME:
                    raise TrimtabError(
                        f"{part}: the time {latest:.15g} is not in seconds since 1970;  "
                        "divide milliseconds by 1,000, microseconds by 1,000,000"
                    )
                yield rows
                if progress is not None:
                    progress(min(1.0, done / total))
    if progress is not None:
        progress(1.0)


@contextmanager
def _wrap_read_errors(place: FilePart | Path) -> Iterator[None]:
    try:
        yield
    except UnicodeError:
        raise TrimtabError(
            f"{place}: the file is not UTF-8 text; convert it, or correct its file extension"
        ) from None
    except (
        EOFError,
        OSError,
        csv.Error,
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise TrimtabError(f"{place}: the file is damaged: {str(error).splitlines()[0]}") from None


def _collect_rows(blocks: Iterable[RowBlock]) -> RecordingTable:
    index: dict[str, int] = {}
    codes: list[npt.NDArray[np.int32]] = []
    seconds: list[Floats] = []
    cpu: list[Floats] = []
    memory: list[Floats] = []
    for rows in blocks:
        positions = np.array([index.setdefault(name, len(index)) for name in rows.names], np.int32)
        codes.append(positions[rows.codes])
        seconds.append(rows.seconds)
        nothing = np.full(len(rows.codes), np.nan)
        cpu.append(nothing if rows.cpu is None else rows.cpu)
        memory.append(nothing if rows.memory is None else rows.memory)
    # A dictionary column may name series that have no rows.
    used, dense = np.unique(_concatenate(codes), return_inverse=True)
    names = list(index)
    return RecordingTable(
        names=tuple(names[code] for code in used),
        codes=dense.astype(np.int64),
        seconds=_concatenate(seconds),
        cpu=_concatenate(cpu),
        memory=_concatenate(memory),
    )


def _concatenate(pieces: list[npt.NDArray[N]]) -> npt.NDArray[N]:
    """Concatenate the pieces and clear the list, so that a column is not held in memory twice."""
    whole: npt.NDArray[N] = np.concatenate(pieces)
    pieces.clear()
    return whole


def _build_trace(path: Path, table: RecordingTable, step: float | None) -> Trace:
    seconds, codes = table.seconds, table.codes
    width = step or _infer_step(codes, seconds)
    day = np.floor(seconds / DAY)
    days, nth_day = np.unique(day, return_inverse=True)
    rows = np.floor((seconds - day * DAY + (days[0] + nth_day) * DAY) / width).astype(np.int64)
    first = int(rows.min())
    rows -= first
    shape = (int(rows.max()) + 1, len(table.names))
    if shape[0] * shape[1] > MAX_CELLS:
        raise TrimtabError(
            f"{path}: {shape[1]:,} series of {shape[0]:,} steps do not fit into memory; read fewer files at a time"
        )
    cpu, memory = (_scatter_max(column, rows, codes, shape) for column in (table.cpu, table.memory))
    return Trace(names=table.names, start=first * width, step=width, cpu=cpu, memory=memory)


def _infer_step(codes: Codes, seconds: Floats) -> float:
    """Return the median distance of two samples of one series, rounded to seconds."""
    order = np.lexsort((seconds, codes))
    gaps = np.diff(seconds[order])[np.diff(codes[order]) == 0]
    gaps = gaps[gaps > 0]
    return max(MIN_STEP, float(np.round(np.median(gaps)))) if len(gaps) else 60.0


def _scatter_max(column: Floats, rows: Codes, codes: Codes, shape: tuple[int, int]) -> Floats:
    grid = np.full(shape, np.nan)
    np.fmax.at(grid, (rows, codes), column)
    return grid
