"""Google's cluster trace of 2011 (clusterdata-2011-1 and -2): `task_usage` parts, CSV without a head.

A series is a task of a job. Time is in microseconds from ten minutes before the trace begins. CPU and memory are
shares of the largest machine, whose size Google has kept to itself: we take 32 cores and 128 GiB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import numpy as np

from trimtab.usage.formats.file_parts import Part
from trimtab.usage.formats.format import GIB, Format, Layout, Row, Rows, numbered, text

CORES, BYTES = 32.0, 128 * GIB
COLUMNS = (19, 20)
"""The second release added a column at the end."""
LAYOUT = Layout(
    {
        "start time": 0,
        "job ID": 2,
        "task index": 3,
        "CPU rate": 5,
        "canonical memory usage": 6,
        "maximum memory usage": 10,
    },
    words=("job ID", "task index"),
    needed=("start time",),
)


def knows(part: Part, head: Row) -> bool:
    return (
        part.kind == "csv" and len(head) in COLUMNS and all(value.isdecimal() for value in head[:5] if value)
    )


def rows(part: Part, stream: IO[bytes]) -> Iterator[Rows]:
    for block in LAYOUT.blocks(part, text(stream)):
        names, codes = numbered(list(map("/".join, zip(block["job ID"], block["task index"], strict=True))))
        yield Rows(
            names,
            codes,
            seconds=block["start time"] / 1e6,
            cpu=block["CPU rate"] * CORES,
            memory=np.fmax(block["maximum memory usage"], block["canonical memory usage"]) * BYTES,
        )


FORMAT = Format("google2011", knows, rows)
