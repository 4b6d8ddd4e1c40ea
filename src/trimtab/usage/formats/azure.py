"""Azure's VM traces of 2017 and 2019: `vm_cpu_readings`, CSV without a head, with `vmtable` for the cores.

CPU is the mean of five minutes in per cent of the cores that the table of machines gives; in 2019 these are buckets,
of which the last is open and taken as its bound. There is no memory. Machines that the table lacks are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from trimtab.usage.formats.file_parts import Part
from trimtab.usage.formats.format import Format, Layout, Row, Rows, Sizes, numbered, text
from trimtab.usage.formats.meta import rows_beside

READINGS = Layout({"timestamp": 0, "vm id": 1, "avg cpu": 4}, words=("vm id",), needed=("timestamp",))
TABLE = Layout({"vm id": 0, "core count": 9}, words=("vm id", "core count"), needed=())
OPEN = ">"


def knows(part: Part, head: Row) -> bool:
    return part.kind == "csv" and len(head) == 5 and head[0].isdecimal() and not _number(head[1])


def _number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def rows(part: Part, stream: IO[bytes]) -> Iterator[Rows]:
    for block in READINGS.blocks(part, text(stream)):
        names, codes = numbered(block["vm id"])
        yield Rows(names, codes, block["timestamp"], cpu=block["avg cpu"] / 100)


def sizes(path: Path, names: Sequence[str]) -> Sizes:
    found = Sizes(*np.full((2, len(names)), np.nan))
    for number, (cores,) in rows_beside(path, "vmtable", names, layout=TABLE):
        if _number(bound := cores.removeprefix(OPEN)):
            found.cores[number] = float(bound)
    return found


FORMAT = Format("azure", knows, rows, sizes)
