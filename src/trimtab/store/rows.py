"""Between records and rows: a record's fields are its table's columns, by the same names."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Row, Table

Record = TypeVar("Record", bound=msgspec.Struct)
T = TypeVar("T")

BATCH = 2000
"""Rows a statement: enough to be quick, few enough that other tasks get their turn in between."""


def row_of(record: msgspec.Struct) -> dict[str, Any]:
    """The columns of a record; its id is given by the database."""
    columns = msgspec.structs.asdict(record)
    columns.pop("id", None)
    return columns


def record_of(kind: type[Record], row: Row[Any], *, numbered: bool = True) -> Record:
    """The record of a row; one that is not numbered leaves its id behind."""
    columns = row._mapping  # noqa: SLF001, SQLAlchemy's public name for it
    fields = (field for field in kind.__struct_fields__ if numbered or field != "id")
    return kind(**{field: columns[field] for field in fields})


def batches(items: Sequence[T], size: int = BATCH) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def within(
    table: Table, *, since: float | None, until: float | None, **equal: str | None
) -> list[ColumnElement[bool]]:
    """The conditions of a search; None asks for nothing."""
    conditions: list[ColumnElement[bool]] = [
        table.c[name] == wanted for name, wanted in equal.items() if wanted is not None
    ]
    if since is not None:
        conditions.append(table.c.timestamp >= since)
    if until is not None:
        conditions.append(table.c.timestamp <= until)
    return conditions
