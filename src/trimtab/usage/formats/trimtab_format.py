"""Our own format: a table with named columns, in any order, as CSV or parquet.

The columns are `series` (a container's name), `t_seconds`, and one each or both of `cpu_cores | cpu_fraction` and
`mem_bytes | mem_fraction`; others are passed over. A fraction is taken of a machine of one core and 16 GiB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Any

from trimtab.errors import TrimtabError
from trimtab.usage.formats.arrow import batches, numbers, words
from trimtab.usage.formats.file_parts import Part
from trimtab.usage.formats.format import GIB, Format, Layout, Row, Rows, numbered, places, text
from trimtab.usage.trace import Floats

CPU = ("cpu_cores", "cpu_fraction")
MEMORY = ("mem_bytes", "mem_fraction")
UNITS = {"mem_fraction": 16 * GIB}


def knows(part: Part, head: Row) -> bool:
    return part.kind != "json" and "t_seconds" in head


def rows(part: Part, stream: IO[bytes]) -> Iterator[Rows]:
    if part.kind == "parquet":
        return _parquet(part, stream)
    return _csv(part, stream)


def _csv(part: Part, stream: IO[bytes]) -> Iterator[Rows]:
    reader = text(stream)
    head = next(reader, [])
    layout = Layout(places(part, head, _wanted(part, head)), words=("series",), needed=("t_seconds",))
    for block in layout.blocks(part, reader, line=2):
        names, codes = numbered(block["series"])
        yield Rows(names, codes, block["t_seconds"], _usage(block, CPU), _usage(block, MEMORY))


def _parquet(part: Part, stream: IO[bytes]) -> Iterator[Rows]:
    for batch in batches(part, stream, wanted=lambda present: _wanted(part, present)):
        names, codes = words(part, batch["series"])
        block = {name: numbers(part, name, batch[name]) for name in batch.schema.names if name != "series"}
        yield Rows(names, codes, block["t_seconds"], _usage(block, CPU), _usage(block, MEMORY))


def _wanted(part: Part, present: Sequence[str]) -> list[str]:
    places(part, present, ("series", "t_seconds"))
    usage = [name for options in (CPU, MEMORY) for name in [n for n in options if n in present][:1]]
    if not usage:
        raise TrimtabError(f"{part}: has no usage; a column must be one of {', '.join(CPU + MEMORY)}")
    return ["series", "t_seconds", *usage]


def _usage(block: dict[str, Any], options: Sequence[str]) -> Floats | None:
    name = next((name for name in options if name in block), None)
    return None if name is None else block[name] * UNITS.get(name, 1.0)


FORMAT = Format("trimtab", knows, rows)
