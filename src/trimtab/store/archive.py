"""All of the store as JSON lines, and back: to move it, to keep it, to look at it with other tools.

The first line says what this is and the last how many records there were, so that a file that was cut short is
not taken for a whole one. Lines are read page by page: an export of a store in use is no snapshot of one moment,
which nothing needs, as no record refers to another.

An import is kept whole or not at all, and importing twice is importing once: a record that the store had before
is left out, and of two states the later stays.
"""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from typing import Any

import msgspec
import structlog
from sqlalchemy import Insert, Table, bindparam, exists, func, insert, not_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from trimtab.store.database import Database
from trimtab.store.effects import Effect
from trimtab.store.errors import ArchiveError
from trimtab.store.events import PlannerEvent
from trimtab.store.history import HistoryEntry
from trimtab.store.row_mapping import BATCH, Record, record_of, row_of, select_records
from trimtab.store.states import State, adopt
from trimtab.store.tables import effects, events, history, states

_log = structlog.get_logger(__name__)

FORMAT = 1


class Head(msgspec.Struct, frozen=True, tag_field="record", tag="trimtab store"):
    format: int


class End(msgspec.Struct, frozen=True, tag_field="record", tag="end"):
    records: int


_TABLES: dict[type[msgspec.Struct], Table] = {
    State: states,
    Effect: effects,
    PlannerEvent: events,
    HistoryEntry: history,
}
_NEWEST = "newest"
_DECODER = msgspec.json.Decoder(Head | End | State | Effect | PlannerEvent | HistoryEntry)


def _line(record: msgspec.Struct) -> bytes:
    return msgspec.json.encode(record) + b"\n"


async def export(database: Database) -> AsyncIterator[bytes]:
    records = 0
    yield _line(Head(FORMAT))
    for kind, table in _TABLES.items():
        async for record in _all(database, kind, table):
            if isinstance(record, State) and not record.intact():
                _log.error("a damaged state is left out of the export", key=record.key)
                continue
            records += 1
            yield _line(record)
    yield _line(End(records))


async def _all(database: Database, kind: type[Record], table: Table) -> AsyncIterator[Record]:
    page = 1 if table is states else BATCH  # a state can be tens of megabytes
    last = 0
    query = (
        select_records(kind, table).add_columns(table.c.id.label("number")).order_by(table.c.id).limit(page)
    )
    full = True
    while full and (rows := await database.rows(query.where(table.c.id > last))):
        for row in rows:
            record = record_of(kind, row)
            # Its number is this store's own affair.
            yield msgspec.structs.replace(record, id=0) if kind is HistoryEntry else record
        last, full = rows[-1].number, len(rows) == page


async def import_lines(database: Database, lines: Iterable[bytes] | AsyncIterable[bytes]) -> int:
    """Take in what `export` gave; how many records there were."""
    async with database.writing() as connection:
        newest = await _newest(connection)
        records = 0
        async for batch in _batches(_checked(lines)):
            records += len(batch)
            kind = type(batch[0])
            if kind is State:
                await adopt(connection, *batch)
            else:
                before = {_NEWEST: newest[kind]}
                await connection.execute(_ARRIVALS[kind], [row_of(record) | before for record in batch])
        return records


async def _newest(connection: AsyncConnection) -> dict[type[msgspec.Struct], int]:
    """The last number that each table has given."""
    numbers = (select(func.max(_TABLES[kind].c.id)).scalar_subquery() for kind in _ARRIVALS)
    found = (await connection.execute(select(*numbers))).one()
    return {kind: number or 0 for kind, number in zip(_ARRIVALS, found, strict=True)}


def _arrival(table: Table) -> Insert:
    """Insert a row unless the table had the same before the import; two alike in one archive are two."""
    columns = [column for column in table.c if column is not table.c.id]
    given = [bindparam(column.name, type_=column.type) for column in columns]
    # "IS NOT DISTINCT FROM" is kept for where it is needed: PostgreSQL cannot use an index for it.
    same = (
        column.is_not_distinct_from(value) if column.nullable else column == value
        for column, value in zip(columns, given, strict=True)
    )
    known = exists().where(table.c.id <= bindparam(_NEWEST), *same)
    return insert(table).from_select([column.name for column in columns], select(*given).where(not_(known)))


_ARRIVALS = {kind: _arrival(table) for kind, table in _TABLES.items() if kind is not State}


async def _batches(records: AsyncIterator[Any]) -> AsyncIterator[Sequence[Any]]:
    """Neighbours of one kind together; a state for itself."""
    batch: list[Any] = []
    async for record in records:
        if batch and (type(record) is not type(batch[0]) or isinstance(record, State) or len(batch) == BATCH):
            yield batch
            batch = []
        batch.append(record)
    if batch:
        yield batch


async def _checked(lines: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncIterator[msgspec.Struct]:
    """The records of a whole and undamaged archive."""
    number, end = 0, None
    async for line in _each(lines):
        number += 1
        record = _decoded(line, number)
        if (number == 1) is not isinstance(record, Head) or end:
            raise _refused(number, "an export begins with its head and finishes with its end, once")
        if isinstance(record, End):
            end = record
        elif not isinstance(record, Head):
            yield record
    if end is None or end.records != number - 2:
        raise _refused(number, "the export is cut short; make it anew")


def _decoded(line: bytes, number: int) -> Any:
    try:
        record = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _refused(number, str(error)) from error
    if isinstance(record, Head) and record.format > FORMAT:
        raise _refused(number, f"format {record.format} is of a newer Trimtab; upgrade this one")
    if isinstance(record, State) and not record.intact():
        raise _refused(number, "the state does not match its checksum")
    return record


def _refused(number: int, why: str) -> ArchiveError:
    return ArchiveError(f"line {number}: {why}; nothing was imported")


async def _each(lines: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(lines, AsyncIterable):
        async for line in lines:
            yield line
    else:
        for line in lines:
            yield line
