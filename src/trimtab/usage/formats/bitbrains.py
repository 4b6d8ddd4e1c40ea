"""GWA-T-12, Bitbrains: a semicolon-separated file a virtual machine, in folders by trace and month.

Its head says that time is in milliseconds; the published files have seconds, some re-hosted ones milliseconds. CPU is
in megahertz of what was provisioned, memory in KB in active use. A machine has the same file name in each month.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import numpy as np

from trimtab.usage.formats.file_parts import Part
from trimtab.usage.formats.format import Format, Layout, Row, Rows, places, text

TIME = "Timestamp [ms]"
CORES, HAS, USES, MEMORY = (
    "CPU cores",
    "CPU capacity provisioned [MHZ]",
    "CPU usage [MHZ]",
    "Memory usage [KB]",
)
LATEST = 1e11
"""No time in seconds is later, and none in milliseconds since 1973 is earlier."""


def knows(part: Part, head: Row) -> bool:
    return part.kind == "csv" and bool(head) and head[0].startswith(TIME + ";")


def rows(part: Part, stream: IO[bytes]) -> Iterator[Rows]:
    reader = text(stream, delimiter=";")
    head = [name.strip() for name in next(reader, [])]
    layout = Layout(places(part, head, (TIME, CORES, HAS, USES, MEMORY)), words=(), needed=(TIME,))
    for block in layout.blocks(part, reader, line=2):
        time = block[TIME]
        with np.errstate(divide="ignore", invalid="ignore"):  # a machine that is off has 0 MHz of 0
            cpu = np.where(block[USES] == 0, 0.0, block[USES] / block[HAS] * block[CORES])
        yield Rows(
            names=[part.stem],
            codes=np.zeros(len(time), np.int64),
            seconds=np.where(time > LATEST, time / 1000, time),
            cpu=cpu,
            memory=block[MEMORY] * 1024,
        )


FORMAT = Format("bitbrains", knows, rows)
