"""The formats in which usage is published, a file each: told apart by their columns, or named by the user."""

from __future__ import annotations

from trimtab.errors import TrimtabError
from trimtab.usage.formats import alibaba2018, azure, bitbrains, google2011, google2019, trimtab_format
from trimtab.usage.formats.csv_header import head
from trimtab.usage.formats.file_parts import Part
from trimtab.usage.formats.format import Format

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


def named(name: str) -> Format:
    if name not in FORMATS:
        raise TrimtabError(f"format {name!r} is not known; there are: {', '.join(FORMATS)}")
    return FORMATS[name]


def of(part: Part) -> Format | None:
    """The format of a part, by its columns; None where it is none that we know."""
    columns = head(part)
    return next((one for one in FORMATS.values() if one.knows(part, columns)), None)


__all__ = ["FORMATS", "Format", "Part", "named", "of"]
