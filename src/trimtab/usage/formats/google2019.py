"""Google's cluster traces of 2019: `instance_usage`, as JSON lines, parquet or CSV, as BigQuery exports them.

A series is an instance of a collection. Time is in microseconds. CPU and memory are shares of the largest machine,
whose size Google has kept to itself: we take 64 cores and 256 GiB. CPU is the mean of the interval, memory its
highest. BigQuery writes whole numbers into JSON as text, and leaves out what is null. CSV has no records within
records: `average_usage` is a column a field, or the record as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import IO, Any

import msgspec
import numpy as np

from trimtab.errors import TrimtabError
from trimtab.kube.errors import NOT_UNDERSTOOD
from trimtab.usage.formats.arrow import batches, numbers
from trimtab.usage.formats.file_parts import Part
from trimtab.usage.formats.format import BLOCK, GIB, Format, Layout, Row, Rows, numbered, places, text
from trimtab.usage.trace import Floats

CORES, BYTES = 64.0, 256 * GIB
TIME, COLLECTION, INSTANCE = "start_time", "collection_id", "instance_index"
MEAN, MOST = "average_usage", "maximum_usage"


def knows(_: Part, head: Row) -> bool:
    return {TIME, COLLECTION, INSTANCE} <= set(head) and any(name.startswith(MEAN) for name in head)


def rows(part: Part, stream: IO[bytes]) -> Iterator[Rows]:
    return {"json": _json, "parquet": _parquet, "csv": _csv}[part.kind](part, stream)


class _Resources(msgspec.Struct, gc=False):
    cpus: float | None = None
    memory: float | None = None


class _Instance(msgspec.Struct, gc=False):
    start_time: int
    collection_id: int
    instance_index: int
    average_usage: _Resources | None = None
    maximum_usage: _Resources | None = None


def _json(part: Part, stream: IO[bytes]) -> Iterator[Rows]:
    decoder = msgspec.json.Decoder(_Instance, strict=False)
    lines = enumerate(stream, start=1)
    while chunk := list(islice(lines, BLOCK)):
        found: list[_Instance] = []
        for number, line in chunk:
            try:
                found.append(decoder.decode(line))
            except NOT_UNDERSTOOD as error:
                raise TrimtabError(f"{part}: line {number} is not an instance's usage: {error}") from None
        nothing = _Resources()
        means = [one.average_usage or nothing for one in found]
        most = [one.maximum_usage or nothing for one in found]
        yield _rows(
            [f"{one.collection_id}/{one.instance_index}" for one in found],
            time=np.array([one.start_time for one in found], np.float64),
            cpu=np.array([one.cpus for one in means], np.float64),
            mean_memory=np.array([one.memory for one in means], np.float64),
            most_memory=np.array([one.memory for one in most], np.float64),
        )


def _parquet(part: Part, stream: IO[bytes]) -> Iterator[Rows]:
    def wanted(present: Sequence[str]) -> list[str]:
        needed = places(part, present, (TIME, COLLECTION, INSTANCE, MEAN))
        return [*needed, *({MOST} & set(present))]

    for batch in batches(part, stream, wanted=wanted):
        mean = batch[MEAN]
        most = batch[MOST] if MOST in batch.schema.names else mean
        ids = zip(batch[COLLECTION].to_pylist(), batch[INSTANCE].to_pylist(), strict=True)
        yield _rows(
            [f"{collection}/{instance}" for collection, instance in ids],
            time=numbers(part, TIME, batch[TIME]),
            cpu=numbers(part, "cpus", _field(mean, "cpus")),
            mean_memory=numbers(part, "memory", _field(mean, "memory")),
            most_memory=numbers(part, "memory", _field(most, "memory")),
        )


def _field(record: Any, name: str) -> Any:
    import pyarrow.compute as pc

    return pc.struct_field(record, name)


def _csv(part: Part, stream: IO[bytes]) -> Iterator[Rows]:
    reader = text(stream)
    head = next(reader, [])
    found = places(part, head, (TIME, COLLECTION, INSTANCE))
    for record, field in ((MEAN, "cpus"), (MEAN, "memory"), (MOST, "memory")):
        place = next((head.index(name) for name in _spelled(record, field) if name in head), None)
        if place is not None:
            found[f"{record}.{field}"] = place
    as_text = tuple(name for name, place in found.items() if head[place] in {MEAN, MOST})
    layout = Layout(found, words=(COLLECTION, INSTANCE, *as_text), needed=(TIME,))
    for block in layout.blocks(part, reader, line=2):
        for name in as_text:
            block[name] = _within(block[name], name.partition(".")[2])
        nothing = np.full(len(block[TIME]), np.nan)
        yield _rows(
            list(map("/".join, zip(block[COLLECTION], block[INSTANCE], strict=True))),
            time=block[TIME],
            cpu=block.get(f"{MEAN}.cpus", nothing),
            mean_memory=block.get(f"{MEAN}.memory", nothing),
            most_memory=block.get(f"{MOST}.memory", nothing),
        )


def _spelled(record: str, field: str) -> tuple[str, ...]:
    return (f"{record}.{field}", f"{record}_{field}", record)


def _within(records: Sequence[str], field: str) -> Floats:
    """A field of records that were written as text, in JSON or in Python's way."""
    pattern = re.compile(rf"""["']{field}["']\s*:\s*["']?([-+.\deE]+)""")
    return np.array([float(found[1]) if (found := pattern.search(record)) else np.nan for record in records])


def _rows(
    series: Sequence[str], *, time: Floats, cpu: Floats, mean_memory: Floats, most_memory: Floats
) -> Rows:
    names, codes = numbered(series)
    memory = np.fmax(most_memory, mean_memory) * BYTES
    return Rows(names, codes, seconds=time / 1e6, cpu=cpu * CORES, memory=memory)


FORMAT = Format("google2019", knows, rows)
