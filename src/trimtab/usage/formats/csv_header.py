"""Read the columns of a table without reading the whole file."""

from __future__ import annotations

from typing import IO

import msgspec

from trimtab.kube.errors import DECODE_ERRORS
from trimtab.usage.formats.arrow import read_column_names
from trimtab.usage.formats.file_parts import FilePart
from trimtab.usage.formats.format import read_csv


def read_header(part: FilePart) -> list[str]:
    """Return the column names, or the first row of a file without a header; empty if there are none."""
    with part.open() as stream:
        if part.kind == "parquet":
            return read_column_names(part, stream)
        if part.kind == "json":
            return _read_json_keys(stream)
        return next(read_csv(stream), [])


def _read_json_keys(stream: IO[bytes]) -> list[str]:
    try:
        first = msgspec.json.decode(stream.readline())
    except DECODE_ERRORS:
        return []
    return list(first) if isinstance(first, dict) else []
