"""Convert between records and rows: the fields of a record are the columns of its table, with the same names."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Row, Select, Table, select

Record = TypeVar("Record", bound=msgspec.Struct)
T = TypeVar("T")

BATCH_SIZE = 2000
"""The rows per statement: enough to be fast, few enough that other tasks can run in between."""


def to_row(record: msgspec.Struct) -> dict[str, Any]:
    """Return the columns of a record without its id, which the database assigns."""
    columns = msgspec.structs.asdict(record)
    columns.pop("id", None)
    return columns


def select_records(kind: type[Record], table: Table) -> Select[Any]:
    """Return a query whose rows `to_record` can convert."""
    return select(*(table.c[field] for field in kind.__struct_fields__))


def to_record(kind: type[Record], row: Row[Any]) -> Record:
    # Map by position, because names cost more than all the rest; a row may have more columns after the record's.
    return kind(**dict(zip(kind.__struct_fields__, row, strict=False)))


def split_batches(items: Sequence[T], size: int = BATCH_SIZE) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def build_conditions(
    table: Table, *, since: float | None, until: float | None, **wanted: str | Sequence[str] | None
) -> list[ColumnElement[bool]]:
    """Return the conditions of a search; None matches everything, and a sequence matches any of its values."""
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
