"""Trimtab's own format: a table with named columns in any order, as CSV or parquet.

The columns are `series` (a container's name), `t_seconds`, and one or both of `cpu_cores | cpu_fraction` and
`mem_bytes | mem_fraction`; other columns are ignored. A fraction refers to a machine of one core and 16 GiB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Any

from trimtab.api.quantity import GIB
from trimtab.errors import TrimtabError
from trimtab.usage.formats.arrow import read_batches, read_names, read_numbers
from trimtab.usage.formats.file_parts import FilePart
from trimtab.usage.formats.format import (
    ColumnLayout,
    Row,
    RowBlock,
    UsageFormat,
    encode_names,
    locate_columns,
    read_csv,
)
from trimtab.usage.trace import Floats

CPU = ("cpu_cores", "cpu_fraction")
MEMORY = ("mem_bytes", "mem_fraction")
UNITS = {"mem_fraction": 16.0 * GIB}


def matches(part: FilePart, head: Row) -> bool:
    return part.kind != "json" and "t_seconds" in head


def read_rows(part: FilePart, stream: IO[bytes]) -> Iterator[RowBlock]:
    if part.kind == "parquet":
        return _read_parquet_rows(part, stream)
    return _read_csv_rows(part, stream)


def _read_csv_rows(part: FilePart, stream: IO[bytes]) -> Iterator[RowBlock]:
    reader = read_csv(stream)
    head = next(reader, [])
    layout = ColumnLayout(
        locate_columns(part, head, _choose_columns(part, head)),
        text_columns=("series",),
        required_columns=("t_seconds",),
    )
    for block in layout.read_blocks(part, reader, line=2):
        names, codes = encode_names(block["series"])
        yield RowBlock(
            names, codes, block["t_seconds"], _scale_usage(block, CPU), _scale_usage(block, MEMORY)
        )


def _read_parquet_rows(part: FilePart, stream: IO[bytes]) -> Iterator[RowBlock]:
    for batch in read_batches(part, stream, choose_columns=lambda present: _choose_columns(part, present)):
        names, codes = read_names(part, batch["series"])
        block = {
            name: read_numbers(part, name, batch[name]) for name in batch.schema.names if name != "series"
        }
        yield RowBlock(
            names, codes, block["t_seconds"], _scale_usage(block, CPU), _scale_usage(block, MEMORY)
        )


def _choose_columns(part: FilePart, present: Sequence[str]) -> list[str]:
    locate_columns(part, present, ("series", "t_seconds"))
    usage = [name for options in (CPU, MEMORY) for name in [n for n in options if n in present][:1]]
    if not usage:
        raise TrimtabError(f"{part}: no usage column was found; add one of {', '.join(CPU + MEMORY)}")
    return ["series", "t_seconds", *usage]


def _scale_usage(block: dict[str, Any], options: Sequence[str]) -> Floats | None:
    name = next((name for name in options if name in block), None)
    return None if name is None else block[name] * UNITS.get(name, 1.0)


FORMAT = UsageFormat("trimtab", matches, read_rows)
