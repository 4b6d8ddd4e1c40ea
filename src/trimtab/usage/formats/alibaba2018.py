"""Alibaba's cluster trace of 2018: `container_usage` or `machine_usage`, CSV without a head, plain or in a tar.

Usage is in per cent of what a container or machine has, which the table of the same name with `meta` says; it is
looked for beside the usage. Memory there is a share of the largest machine, whose size is not published: its 96 cores
are, and we take 384 GiB. Values that are not from 0 to 100 are, as its makers say, no measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from trimtab.usage.formats.file_parts import Part
from trimtab.usage.formats.format import GIB, Format, Layout, Row, Rows, Sizes, numbered, text
from trimtab.usage.formats.meta import rows_beside
from trimtab.usage.trace import Floats

BYTES = 384 * GIB


@dataclass(frozen=True, slots=True)
class _Tables:
    """The two tables of a kind of thing: where their columns are."""

    prefix: str
    """How the names of such things begin."""
    width: int
    usage: Layout
    meta: Layout
    meta_name: str
    core: float
    """What the meta table calls one core."""


CONTAINERS = _Tables(
    prefix="c_",
    width=11,
    usage=Layout(
        {"container_id": 0, "time_stamp": 2, "cpu_util_percent": 3, "mem_util_percent": 4},
        words=("container_id",),
        needed=("time_stamp",),
    ),
    meta=Layout({"container_id": 0, "cpu_request": 5, "mem_size": 7}, words=("container_id",), needed=()),
    meta_name="container_meta",
    core=100.0,
)
MACHINES = _Tables(
    prefix="m_",
    width=9,
    usage=Layout(
        {"machine_id": 0, "time_stamp": 1, "cpu_util_percent": 2, "mem_util_percent": 3},
        words=("machine_id",),
        needed=("time_stamp",),
    ),
    meta=Layout({"machine_id": 0, "cpu_num": 4, "mem_size": 5}, words=("machine_id",), needed=()),
    meta_name="machine_meta",
    core=1.0,
)


def _format(name: str, tables: _Tables) -> Format:
    return Format(name, _knows(tables), _rows(tables), _sizes(tables))


def _knows(tables: _Tables) -> Callable[[Part, Row], bool]:
    def knows(part: Part, head: Row) -> bool:
        return part.kind == "csv" and len(head) == tables.width and head[0].startswith(tables.prefix)

    return knows


def _rows(tables: _Tables) -> Callable[[Part, IO[bytes]], Iterator[Rows]]:
    def rows(part: Part, stream: IO[bytes]) -> Iterator[Rows]:
        series, time, cpu, memory = tables.usage.places
        for block in tables.usage.blocks(part, text(stream)):
            names, codes = numbered(block[series])
            yield Rows(names, codes, block[time], _share(block[cpu]), _share(block[memory]))

    return rows


def _share(percent: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.where((percent >= 0) & (percent <= 100), percent / 100, np.nan)


def _sizes(tables: _Tables) -> Callable[[Path, Sequence[str]], Sizes]:
    def sizes(path: Path, names: Sequence[str]) -> Sizes:
        found = Sizes(*np.full((2, len(names)), np.nan))
        for number, (cpu, memory) in rows_beside(path, tables.meta_name, names, layout=tables.meta):
            found.cores[number], found.bytes[number] = cpu / tables.core, memory / 100 * BYTES
        return found

    return sizes


FORMAT = _format("alibaba2018", CONTAINERS)
MACHINES_FORMAT = _format("alibaba2018-machines", MACHINES)
