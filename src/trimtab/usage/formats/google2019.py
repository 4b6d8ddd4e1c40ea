"""Google's 2019 cluster traces: `instance_usage` as JSON lines, parquet or CSV, as BigQuery exports them.

A series is an instance of a collection. Time is in microseconds. CPU and memory are shares of the largest
machine, whose size Google does not publish; 64 cores and 256 GiB are assumed. CPU is the mean of the
interval, memory its maximum. BigQuery writes integers into JSON as text and omits nulls. CSV has no nested
records: `average_usage` is one column per field, or the record as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import IO, Any

import msgspec
import numpy as np

from trimtab.api.quantity import GIB
from trimtab.errors import TrimtabError
from trimtab.kube.errors import DECODE_ERRORS
from trimtab.usage.formats.arrow import read_batches, read_numbers
from trimtab.usage.formats.file_parts import FilePart
from trimtab.usage.formats.format import (
    BLOCK_ROWS,
    ColumnLayout,
    Row,
    RowBlock,
    UsageFormat,
    encode_names,
    locate_columns,
    read_csv,
)
from trimtab.usage.trace import Floats

MACHINE_CORES, MACHINE_BYTES = 64.0, 256.0 * GIB
TIME, COLLECTION, INSTANCE = "start_time", "collection_id", "instance_index"
MEAN, MAXIMUM = "average_usage", "maximum_usage"


def matches(_: FilePart, head: Row) -> bool:
    return {TIME, COLLECTION, INSTANCE} <= set(head) and any(name.startswith(MEAN) for name in head)


def read_rows(part: FilePart, stream: IO[bytes]) -> Iterator[RowBlock]:
    return {"json": _read_json_rows, "parquet": _read_parquet_rows, "csv": _read_csv_rows}[part.kind](
        part, stream
    )


class _Resources(msgspec.Struct, gc=False):
    cpus: float | None = None
    memory: float | None = None


class _Instance(msgspec.Struct, gc=False):
    start_time: int
    collection_id: int
    instance_index: int
    average_usage: _Resources | None = None
    maximum_usage: _Resources | None = None


def _read_json_rows(part: FilePart, stream: IO[bytes]) -> Iterator[RowBlock]:
    decoder = msgspec.json.Decoder(_Instance, strict=False)
    lines = enumerate(stream, start=1)
    while chunk := list(islice(lines, BLOCK_ROWS)):
        found: list[_Instance] = []
        for number, line in chunk:
            try:
                found.append(decoder.decode(line))
            except DECODE_ERRORS as error:
                raise TrimtabError(
                    f"{part}: line {number} is not an instance usage record: {error}"
                ) from None
        nothing = _Resources()
        means = [one.average_usage or nothing for one in found]
        most = [one.maximum_usage or nothing for one in found]
        yield _build_rows(
            [f"{one.collection_id}/{one.instance_index}" for one in found],
            time=np.array([one.start_time for one in found], np.float64),
            cpu=np.array([one.cpus for one in means], np.float64),
            mean_memory=np.array([one.memory for one in means], np.float64),
            most_memory=np.array([one.memory for one in most], np.float64),
        )


def _read_parquet_rows(part: FilePart, stream: IO[bytes]) -> Iterator[RowBlock]:
    def choose_columns(present: Sequence[str]) -> list[str]:
        needed = locate_columns(part, present, (TIME, COLLECTION, INSTANCE, MEAN))
        return [*needed, *({MAXIMUM} & set(present))]

    for batch in read_batches(part, stream, choose_columns=choose_columns):
        mean = batch[MEAN]
        most = batch[MAXIMUM] if MAXIMUM in batch.schema.names else mean
        ids = zip(batch[COLLECTION].to_pylist(), batch[INSTANCE].to_pylist(), strict=True)
        yield _build_rows(
            [f"{collection}/{instance}" for collection, instance in ids],
            time=read_numbers(part, TIME, batch[TIME]),
            cpu=read_numbers(part, "cpus", _struct_field(mean, "cpus")),
            mean_memory=read_numbers(part, "memory", _struct_field(mean, "memory")),
            most_memory=read_numbers(part, "memory", _struct_field(most, "memory")),
        )


def _struct_field(record: Any, name: str) -> Any:
    import pyarrow.compute as pc

    return pc.struct_field(record, name)


def _read_csv_rows(part: FilePart, stream: IO[bytes]) -> Iterator[RowBlock]:
    reader = read_csv(stream)
    head = next(reader, [])
    found = locate_columns(part, head, (TIME, COLLECTION, INSTANCE))
    for record, field in ((MEAN, "cpus"), (MEAN, "memory"), (MAXIMUM, "memory")):
        place = next((head.index(name) for name in _column_spellings(record, field) if name in head), None)
        if place is not None:
            found[f"{record}.{field}"] = place
    as_text = tuple(name for name, place in found.items() if head[place] in {MEAN, MAXIMUM})
    layout = ColumnLayout(found, text_columns=(COLLECTION, INSTANCE, *as_text), required_columns=(TIME,))
    for block in layout.read_blocks(part, reader, line=2):
        for name in as_text:
            block[name] = _parse_records(block[name], name.partition(".")[2])
        nothing = np.full(len(block[TIME]), np.nan)
        yield _build_rows(
            list(map("/".join, zip(block[COLLECTION], block[INSTANCE], strict=True))),
            time=block[TIME],
            cpu=block.get(f"{MEAN}.cpus", nothing),
            mean_memory=block.get(f"{MEAN}.memory", nothing),
            most_memory=block.get(f"{MAXIMUM}.memory", nothing),
        )


def _column_spellings(record: str, field: str) -> tuple[str, ...]:
    return (f"{record}.{field}", f"{record}_{field}", record)


def _parse_records(records: Sequence[str], field: str) -> Floats:
    """Return one field of records that were written as text, in JSON or Python notation."""
    pattern = re.compile(rf"""["']{field}["']\s*:\s*["']?([-+.\deE]+)""")
    return np.array([float(found[1]) if (found := pattern.search(record)) else np.nan for record in records])


def _build_rows(
    series: Sequence[str], *, time: Floats, cpu: Floats, mean_memory: Floats, most_memory: Floats
) -> RowBlock:
    names, codes = encode_names(series)
    memory = np.fmax(most_memory, mean_memory) * MACHINE_BYTES
    return RowBlock(names, codes, seconds=time / 1e6, cpu=cpu * MACHINE_CORES, memory=memory)


FORMAT = UsageFormat("google2019", matches, read_rows)
