"""Azure's VM traces of 2017 and 2019: `vm_cpu_readings`, CSV without a header, with core counts in `vmtable`.

CPU is the five-minute mean as a percentage of the VM's cores. In 2019 core counts are buckets; the open last
bucket counts as its lower bound. The traces have no memory. VMs that are missing in the table are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

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

READINGS_LAYOUT = ColumnLayout(
    {"timestamp": 0, "vm id": 1, "avg cpu": 4}, text_columns=("vm id",), required_columns=("timestamp",)
)
VM_TABLE_LAYOUT = ColumnLayout(
    {"vm id": 0, "core count": 9}, text_columns=("vm id", "core count"), required_columns=()
)
OPEN_BUCKET = ">"


def matches(part: FilePart, head: Row) -> bool:
    return part.kind == "csv" and len(head) == 5 and head[0].isdecimal() and not _is_number(head[1])


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def read_rows(part: FilePart, stream: IO[bytes]) -> Iterator[RowBlock]:
    for block in READINGS_LAYOUT.read_blocks(part, read_csv(stream)):
        names, codes = encode_names(block["vm id"])
        yield RowBlock(names, codes, block["timestamp"], cpu=block["avg cpu"] / 100)


def read_sizes(path: Path, names: Sequence[str]) -> SeriesSizes:
    found = SeriesSizes(*np.full((2, len(names)), np.nan))
    for number, (cores,) in read_meta_rows(path, "vmtable", names, layout=VM_TABLE_LAYOUT):
        if _is_number(bound := cores.removeprefix(OPEN_BUCKET)):
            found.cores[number] = float(bound)
    return found


FORMAT = UsageFormat("azure", matches, read_rows, read_sizes)
