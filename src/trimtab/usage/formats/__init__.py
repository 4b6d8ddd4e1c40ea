"""Supported usage file formats, one module each; a file's columns or the user selects one."""

from __future__ import annotations

from trimtab.errors import TrimtabError
from trimtab.usage.formats import alibaba2018, azure, bitbrains, google2011, google2019, trimtab_format
from trimtab.usage.formats.csv_header import read_header
from trimtab.usage.formats.file_parts import FilePart
from trimtab.usage.formats.format import UsageFormat

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
    columns = read_header(part)
    return next((one for one in FORMATS.values() if one.matches(part, columns)), None)


__all__ = ["FORMATS", "FilePart", "UsageFormat", "detect_format", "get_format"]
