"""Supported usage file formats, one module each; a file's columns or the user selects one."""

from __future__ import annotations

from typing import IO

import msgspec

from trimtab.errors import TrimtabError
from trimtab.kube.errors import DECODE_ERRORS
from trimtab.usage.formats import alibaba2018, azure, bitbrains, google2011, google2019, trimtab_format
from trimtab.usage.formats.arrow import read_column_names
from trimtab.usage.formats.file_parts import FilePart
from trimtab.usage.formats.format import UsageFormat, read_csv

FORMATS = {
    one.name: one
    for one in (
        trimtab_format.FORMAT,
        bitbrains.FORMAT,
        google2011.FORMAT,
        google2019.FORMAT,
        alibaba2018.FORMAT,
        alibaba2018.MACHINES_FORMAT,
        azure.FORMAT,
    )
}


def get_format(name: str) -> UsageFormat:
    if name not in FORMATS:
        raise TrimtabError(f"format {name!r} is not known; there are: {', '.join(FORMATS)}")
    return FORMATS[name]


def detect_format(part: FilePart) -> UsageFormat | None:
    """Return the format of a part by its columns; None if no format matches."""
    columns = _read_header(part)
    return next((one for one in FORMATS.values() if one.matches(part, columns)), None)


def _read_header(part: FilePart) -> list[str]:
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


__all__ = ["FORMATS", "FilePart", "UsageFormat", "detect_format", "get_format"]
