"""The formats in which usage is published, a file each: told apart by their columns, or named by the user."""

from __future__ import annotations

from trimtab.errors import TrimtabError
from trimtab.usage.formats import alibaba2018, azure, bitbrains, google2011, google2019, own
from trimtab.usage.formats.format import Format
from trimtab.usage.formats.head import head
from trimtab.usage.formats.part import Part

FORMATS = {
    one.name: one
    for one in (
        own.FORMAT,
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
