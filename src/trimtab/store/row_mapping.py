"""Between records and rows: a record's fields are its table's columns, by the same names."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Row, Select, Table, select

Record = TypeVar("Record", bound=msgspec.Struct)
T = TypeVar("T")

BATCH_SIZE = 2000
"""Rows a statement: enough to be quick, few enough that other tasks get their turn in between."""


def to_row(record: msgspec.Struct) -> dict[str, Any]:
    """The columns of a record; its id is given by the database."""
    columns = msgspec.structs.asdict(record)
    columns.pop("id", None)
    return columns


def select_records(kind: type[Record], table: Table) -> Select[Any]:
    """A query whose rows `record_of` understands."""
    return select(*(table.c[field] for field in kind.__struct_fields__))


def to_record(kind: type[Record], row: Row[Any]) -> Record:
    # By position, since names cost more than all the rest; a row may have more to say behind its record.
    return kind(**dict(zip(kind.__struct_fields__, row, strict=False)))


def split_batches(items: Sequence[T], size: int = BATCH_SIZE) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def build_conditions(
    table: Table, *, since: float | None, until: float | None, **wanted: str | Sequence[str] | None
) -> list[ColumnElement[bool]]:
    """The conditions of a search; None asks for nothing, and of several words any will do."""
    conditions: list[ColumnElement[bool]] = [
        table.c[name] == words if isinstance(words, str) else table.c[name].in_(words)
        for name, words in wanted.items()
        if words is not None
    ]
    if since is not None:
        conditions.append(table.c.timestamp >= since)
    if until is not None:
        conditions.append(table.c.timestamp <= until)
    return conditions
