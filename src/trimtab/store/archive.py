"""Export the store as JSON lines, and import it: to move it, to back it up, to read it with other tools.

The first line names the format and the last one the number of records, so that a truncated file is detected. Rows are
read page by page: an export of a store in use is not a snapshot of one moment, which is not needed because no record
refers to another. An import is committed whole or not at all, and importing twice has the same effect as importing
once: a record that the store already has is skipped, and of two states the later one is kept.
"""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from typing import Any

import msgspec
import structlog
from sqlalchemy import Insert, Table, bindparam, exists, func, insert, not_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from trimtab.store.database import BATCH_SIZE, Database, Record, select_records, to_record, to_row
from trimtab.store.errors import ArchiveError
from trimtab.store.history import HistoryRecord
from trimtab.store.planner_records import Effect, PlannerEvent
from trimtab.store.states import StoredState, upsert_if_newer
from trimtab.store.tables import effects, events, history, states

_log = structlog.get_logger(__name__)

FORMAT = 1


class ArchiveHeader(msgspec.Struct, frozen=True, tag_field="record", tag="trimtab store"):
    format: int


class ArchiveTrailer(msgspec.Struct, frozen=True, tag_field="record", tag="end"):
    records: int


_TABLES: dict[type[msgspec.Struct], Table] = {
    StoredState: states,
    Effect: effects,
    PlannerEvent: events,
    HistoryRecord: history,
}
_LAST_ID = "newest"
_DECODER = msgspec.json.Decoder(
    ArchiveHeader | ArchiveTrailer | StoredState | Effect | PlannerEvent | HistoryRecord
)


def _encode_line(record: msgspec.Struct) -> bytes:
    return msgspec.json.encode(record) + b"\n"


async def export_records(database: Database) -> AsyncIterator[bytes]:
    records = 0
    yield _encode_line(ArchiveHeader(FORMAT))
    for kind, table in _TABLES.items():
        async for record in _read_all(database, kind, table):
            if isinstance(record, StoredState) and not record.is_intact():
                _log.error("store.damaged_state_skipped", key=record.key)
                continue
            records += 1
            yield _encode_line(record)
    yield _encode_line(ArchiveTrailer(records))


async def _read_all(database: Database, kind: type[Record], table: Table) -> AsyncIterator[Record]:
    page = 1 if table is states else BATCH_SIZE  # a state can be tens of megabytes
    last = 0
    query = (
        select_records(kind, table).add_columns(table.c.id.label("number")).order_by(table.c.id).limit(page)
    )
    full = True
    while full and (rows := await database.fetch_rows(query.where(table.c.id > last))):
        for row in rows:
            record = to_record(kind, row)
            # The id is internal to this store.
            yield msgspec.structs.replace(record, id=0) if kind is HistoryRecord else record
        last, full = rows[-1].number, len(rows) == page


async def import_lines(database: Database, lines: Iterable[bytes] | AsyncIterable[bytes]) -> int:
    """Import the lines of an export and return the number of records."""
    async with database.begin_write() as connection:
        newest = await _read_last_ids(connection)
        records = 0
        async for batch in _batch_by_kind(_validate_lines(lines)):
            records += len(batch)
            kind = type(batch[0])
            if kind is StoredState:
                await upsert_if_newer(connection, *batch)
            else:
                before = {_LAST_ID: newest[kind]}
                await connection.execute(_INSERTS[kind], [to_row(record) | before for record in batch])
        return records


async def _read_last_ids(connection: AsyncConnection) -> dict[type[msgspec.Struct], int]:
    """Return the last id of each table."""
    numbers = (select(func.max(_TABLES[kind].c.id)).scalar_subquery() for kind in _INSERTS)
    found = (await connection.execute(select(*numbers))).one()
    return {kind: number or 0 for kind, number in zip(_INSERTS, found, strict=True)}


def _insert_if_new(table: Table) -> Insert:
    """Insert a row unless the table had an equal one before the import; two equal rows in one archive are both
    kept.
    """
    columns = [column for column in table.c if column is not table.c.id]
    given = [bindparam(column.name, type_=column.type) for column in columns]
    # Use "IS NOT DISTINCT FROM" only where it is needed: PostgreSQL cannot use an index for it.
    same = (
        column.is_not_distinct_from(value) if column.nullable else column == value
        for column, value in zip(columns, given, strict=True)
    )
    known = exists().where(table.c.id <= bindparam(_LAST_ID), *same)
    return insert(table).from_select([column.name for column in columns], select(*given).where(not_(known)))


_INSERTS = {kind: _insert_if_new(table) for kind, table in _TABLES.items() if kind is not StoredState}


async def _batch_by_kind(records: AsyncIterator[Any]) -> AsyncIterator[Sequence[Any]]:
    """Group consecutive records of one kind; each state is a group of its own."""
    batch: list[Any] = []
    async for record in records:
        if batch and (
            type(record) is not type(batch[0]) or isinstance(record, StoredState) or len(batch) == BATCH_SIZE
        ):
            yield batch
            batch = []
        batch.append(record)
    if batch:
        yield batch


async def _validate_lines(lines: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncIterator[msgspec.Struct]:
    """Iterate over the records of an archive, and fail if it is incomplete or damaged."""
    number, end = 0, None
    async for line in _iterate(lines):
        number += 1
        record = _decode_line(line, number)
        if (number == 1) is not isinstance(record, ArchiveHeader) or end:
            raise _make_archive_error(
                number, "the file must have one header, first, and one end record, last; export it again"
            )
        if isinstance(record, ArchiveTrailer):
            end = record
        elif not isinstance(record, ArchiveHeader):
            yield record
    if end is None or end.records != number - 2:
        raise _make_archive_error(number, "the file is truncated; export it again")


def _decode_line(line: bytes, number: int) -> Any:
    try:
        record = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _make_archive_error(number, str(error)) from error
    if isinstance(record, ArchiveHeader) and record.format > FORMAT:
        raise _make_archive_error(
            number, f"format {record.format} was written by a newer Trimtab; upgrade this one"
        )
    if isinstance(record, StoredState) and not record.is_intact():
        raise _make_archive_error(number, "the state does not match its checksum")
    return record


def _make_archive_error(number: int, why: str) -> ArchiveError:
    return ArchiveError(f"line {number}: {why}; nothing was imported")


async def _iterate(lines: Iterable[bytes] | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(lines, AsyncIterable):
        async for line in lines:
            yield line
    else:
        for line in lines:
            yield line
