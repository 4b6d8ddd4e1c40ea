"""Bitbrains' GWA-T-12: one semicolon-separated file per virtual machine, in folders by trace and month.

The header says that time is in milliseconds; the published files use seconds, some re-hosted ones
milliseconds. CPU is in megahertz of the provisioned capacity, memory in KB in active use. A machine has the
same file name in each month.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import numpy as np

from trimtab.usage.formats.file_parts import FilePart
from trimtab.usage.formats.format import ColumnLayout, Row, RowBlock, UsageFormat, locate_columns, read_csv

TIME = "Timestamp [ms]"
CORES, CAPACITY, USAGE, MEMORY = (
    "CPU cores",
    "CPU capacity provisioned [MHZ]",
    "CPU usage [MHZ]",
    "Memory usage [KB]",
)
MAX_SECONDS = 1e11
"""The boundary between units: times in seconds are smaller, times in milliseconds since 1973 are larger."""


def matches(part: FilePart, head: Row) -> bool:
    return part.kind == "csv" and bool(head) and head[0].startswith(TIME + ";")


def read_rows(part: FilePart, stream: IO[bytes]) -> Iterator[RowBlock]:
    reader = read_csv(stream, delimiter=";")
    head = [name.strip() for name in next(reader, [])]
    layout = ColumnLayout(
        locate_columns(part, head, (TIME, CORES, CAPACITY, USAGE, MEMORY)),
        text_columns=(),
        required_columns=(TIME,),
    )
    for block in layout.read_blocks(part, reader, line=2):
        time = block[TIME]
        with np.errstate(divide="ignore", invalid="ignore"):  # a stopped machine has 0 MHz of 0
            cpu = np.where(block[USAGE] == 0, 0.0, block[USAGE] / block[CAPACITY] * block[CORES])
        yield RowBlock(
            names=[part.stem],
            codes=np.zeros(len(time), np.int64),
            seconds=np.where(time > MAX_SECONDS, time / 1000, time),
            cpu=cpu,
            memory=block[MEMORY] * 1024,
        )


FORMAT = UsageFormat("bitbrains", matches, read_rows)
