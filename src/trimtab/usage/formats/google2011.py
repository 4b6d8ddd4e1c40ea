"""Google's 2011 cluster trace (clusterdata-2011-1 and -2): `task_usage` parts, CSV without a header.

A series is a task of a job. Time is in microseconds and starts ten minutes before the trace. CPU and memory
are shares of the largest machine, whose size Google does not publish; 32 cores and 128 GiB are assumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import numpy as np

from trimtab.api.quantity import GIB
from trimtab.usage.formats.file_parts import FilePart
from trimtab.usage.formats.format import ColumnLayout, Row, RowBlock, UsageFormat, encode_names, read_csv

MACHINE_CORES, MACHINE_BYTES = 32.0, 128.0 * GIB
COLUMN_COUNTS = (19, 20)
"""The possible numbers of columns; the second release added one at the end."""
LAYOUT = ColumnLayout(
    {
        "start time": 0,
        "job ID": 2,
        "task index": 3,
        "CPU rate": 5,
        "canonical memory usage": 6,
        "maximum memory usage": 10,
    },
    text_columns=("job ID", "task index"),
    required_columns=("start time",),
)


def matches(part: FilePart, head: Row) -> bool:
    return (
        part.kind == "csv"
        and len(head) in COLUMN_COUNTS
        and all(value.isdecimal() for value in head[:5] if value)
    )


def read_rows(part: FilePart, stream: IO[bytes]) -> Iterator[RowBlock]:
    for block in LAYOUT.read_blocks(part, read_csv(stream)):
        names, codes = encode_names(
            list(map("/".join, zip(block["job ID"], block["task index"], strict=True)))
        )
        yield RowBlock(
            names,
            codes,
            seconds=block["start time"] / 1e6,
            cpu=block["CPU rate"] * MACHINE_CORES,
            memory=np.fmax(block["maximum memory usage"], block["canonical memory usage"]) * MACHINE_BYTES,
        )


FORMAT = UsageFormat("google2011", matches, read_rows)
