"""Alibaba's 2018 cluster trace: `container_usage` or `machine_usage` as CSV without a header.

Usage is a percentage of the size of a container or machine, which is in the corresponding `meta` table next
to the usage file. Memory sizes are percentages of the largest machine, whose size is not published; its 96
cores are, and 384 GiB of memory is assumed. Values outside 0 to 100 are invalid according to the trace's
documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from trimtab.api.quantity import GIB
from trimtab.usage.formats.file_parts import FilePart
from trimtab.usage.formats.format import (
    ColumnLayout,
    Row,
    RowBlock,
    SeriesSizes,
    UsageFormat,
    encode_names,
    read_csv,
    read_meta_rows,
)
from trimtab.usage.trace import Floats

MACHINE_BYTES = 384.0 * GIB


@dataclass(frozen=True, slots=True)
class _Tables:
    """The column layouts of the usage table and the meta table of one entity."""

    prefix: str
    """The prefix of entity names."""
    width: int
    usage: ColumnLayout
    meta: ColumnLayout
    meta_name: str
    units_per_core: float
    """The number that the meta table uses for one core."""


CONTAINERS = _Tables(
    prefix="c_",
    width=11,
    usage=ColumnLayout(
        {"container_id": 0, "time_stamp": 2, "cpu_util_percent": 3, "mem_util_percent": 4},
        text_columns=("container_id",),
        required_columns=("time_stamp",),
    ),
    meta=ColumnLayout(
        {"container_id": 0, "cpu_request": 5, "mem_size": 7},
        text_columns=("container_id",),
        required_columns=(),
    ),
    meta_name="container_meta",
    units_per_core=100.0,
)
MACHINES = _Tables(
    prefix="m_",
    width=9,
    usage=ColumnLayout(
        {"machine_id": 0, "time_stamp": 1, "cpu_util_percent": 2, "mem_util_percent": 3},
        text_columns=("machine_id",),
        required_columns=("time_stamp",),
    ),
    meta=ColumnLayout(
        {"machine_id": 0, "cpu_num": 4, "mem_size": 5}, text_columns=("machine_id",), required_columns=()
    ),
    meta_name="machine_meta",
    units_per_core=1.0,
)


def _build_format(name: str, tables: _Tables) -> UsageFormat:
    return UsageFormat(name, _build_matcher(tables), _build_row_reader(tables), _build_size_reader(tables))


def _build_matcher(tables: _Tables) -> Callable[[FilePart, Row], bool]:
    def matches(part: FilePart, head: Row) -> bool:
        return part.kind == "csv" and len(head) == tables.width and head[0].startswith(tables.prefix)

    return matches


def _build_row_reader(tables: _Tables) -> Callable[[FilePart, IO[bytes]], Iterator[RowBlock]]:
    def rows(part: FilePart, stream: IO[bytes]) -> Iterator[RowBlock]:
        series, time, cpu, memory = tables.usage.positions
        for block in tables.usage.read_blocks(part, read_csv(stream)):
            names, codes = encode_names(block[series])
            yield RowBlock(
                names, codes, block[time], _parse_percent(block[cpu]), _parse_percent(block[memory])
            )

    return rows


def _parse_percent(percent: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.where((percent >= 0) & (percent <= 100), percent / 100, np.nan)


def _build_size_reader(tables: _Tables) -> Callable[[Path, Sequence[str]], SeriesSizes]:
    def sizes(path: Path, names: Sequence[str]) -> SeriesSizes:
        found = SeriesSizes(*np.full((2, len(names)), np.nan))
        for number, (cpu, memory) in read_meta_rows(path, tables.meta_name, names, layout=tables.meta):
            found.cores[number], found.bytes[number] = (
                cpu / tables.units_per_core,
                memory / 100 * MACHINE_BYTES,
            )
        return found

    return sizes


FORMAT = _build_format("alibaba2018", CONTAINERS)
MACHINES_FORMAT = _build_format("alibaba2018-machines", MACHINES)
