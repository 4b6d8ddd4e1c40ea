"""The columns of a table, from as little of it as can be read."""

from __future__ import annotations

from typing import IO

import msgspec

from trimtab.kube.errors import NOT_UNDERSTOOD
from trimtab.usage.formats.arrow import schema
from trimtab.usage.formats.file_parts import Part
from trimtab.usage.formats.format import text


def head(part: Part) -> list[str]:
    """The names of its columns, or its first row where it has no head; nothing where it cannot be told."""
    with part.open() as stream:
        if part.kind == "parquet":
            return schema(part, stream)
        if part.kind == "json":
            return _keys(stream)
        return next(text(stream), [])


def _keys(stream: IO[bytes]) -> list[str]:
    try:
        first = msgspec.json.decode(stream.readline())
    except NOT_UNDERSTOOD:
        return []
    return list(first) if isinstance(first, dict) else []
