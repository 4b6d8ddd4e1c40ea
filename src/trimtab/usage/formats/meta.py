"""Read the table next to a recording that has the size of each container or machine.

It may contain millions of entries that the recording does not, so it is streamed and only the series at hand
are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trimtab.errors import TrimtabError
from trimtab.usage.formats.file_parts import FilePart, find_parts_in_file
from trimtab.usage.formats.format import ColumnLayout, read_csv


def read_meta_rows(
    path: Path, table: str, names: Sequence[str], *, layout: ColumnLayout
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield the rows of these series: the index of the name, and the layout's columns after the first."""
    part = _find_meta_file(path, table)
    index = {name: number for number, name in enumerate(names)}
    with part.open() as stream:
        for block in layout.read_blocks(part, read_csv(stream)):
            for name, *values in zip(*block.values(), strict=True):
                if (number := index.get(name)) is not None:
                    yield number, tuple(values)


def _find_meta_file(path: Path, table: str) -> FilePart:
    places = [
        *(sorted(path.rglob(f"{table}*")) if path.is_dir() else ()),
        *sorted(path.parent.glob(f"{table}*")),
    ]
    found = next((part for file in places if file.is_file() for part in find_parts_in_file(file)), None)
    if found is None:
        raise TrimtabError(
            f"{path}: {table}.csv is missing next to it; usage is a share of the sizes in that table"
        )
    return found
