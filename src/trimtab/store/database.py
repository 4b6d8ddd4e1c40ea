"""Read and write access to the store, independent of the database.

Readers see committed data and never wait for a writer. A writer's block is one transaction: it is committed whole or
not at all. Errors of the drivers are raised as `StoreError`. A database that was damaged or replaced is reopened at
the next use, so that a long-running process need not be restarted. The repositories know the tables; the fields of a
record are the columns of its table, with the same names.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, ClassVar, Protocol, Self, TypeVar

import msgspec
import structlog
from sqlalchemy import ColumnElement, Executable, Row, Select, Table, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from trimtab.store.errors import (
    SETTING,
    BusyError,
    DamagedError,
    FullError,
    RecordError,
    StoreError,
    UnavailableError,
)
from trimtab.store.schema import check_schema, upgrade_schema

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


log = structlog.get_logger(__name__)

WRITE_OPTION = "trimtab_writing"
"""The execution option that tells a backend if a transaction writes."""


class Backend(Protocol):
    """The differences between the databases."""

    max_writers: ClassVar[int]
    """The number of our tasks that may write at once."""

    migration_lock: ClassVar[str | None]
    """The statement that keeps a second replica from migrating at the same time, if beginning to write does not."""

    read_only: bool
    """The database is never changed, only read."""

    def create_engine(self) -> AsyncEngine: ...

    def prepare_open(self) -> AbstractAsyncContextManager[None]:
        """Prepare the opening of the store, and hold any lock that it needs meanwhile."""
        ...

    def is_replaced(self) -> bool:
        """Return True if the file or server that was opened is no longer the one at this address."""
        ...

    async def insert(self, connection: AsyncConnection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        """Insert many rows as fast as the database can; there is at least one."""
        ...

    def translate_error(self, error: BaseException) -> StoreError:
        """Return the error for the user that corresponds to an error of the driver."""
        ...


class Database:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        with self._translate_errors():
            self._engine = backend.create_engine()
        self._writer = self._engine.execution_options(**{WRITE_OPTION: True})
        self._writers = asyncio.Semaphore(backend.max_writers)
        self._open_lock = asyncio.Lock()
        self._needs_open = True
        self._last_open_error: StoreError | None = None
        """The reason why the last reopening failed."""

    @classmethod
    @asynccontextmanager
    async def open(cls, backend: Backend, *, allow_unavailable: bool = False) -> AsyncIterator[Self]:
        """Open the database; with `allow_unavailable`, a store that is unavailable, busy or full is opened at its
        first use instead.

        An operator must relieve OOM kills and revert changes even if its store does not work.
        """
        database = cls(backend)
        try:
            try:
                await database._open()
            except (UnavailableError, BusyError, FullError) as error:
                if not allow_unavailable:
                    raise
                log.warning("store.unavailable", error=str(error))
            yield database
        finally:
            await database.close()

    async def close(self) -> None:
        await self._engine.dispose()

    async def _open(self) -> None:
        async with self._backend.prepare_open():
            await self._engine.dispose()  # dispose of idle connections: they belong to the former file
            with self._translate_errors():
                if self._backend.read_only:
                    async with self._engine.connect() as connection:
                        await check_schema(connection)
                else:
                    async with self._writer.begin() as connection:
                        await upgrade_schema(connection, lock=self._backend.migration_lock)
            self._needs_open = False

    async def _reopen_if_lost(self) -> None:
        if self._needs_open or self._backend.is_replaced():
            known = self._last_open_error
            async with self._open_lock:
                if self._last_open_error is not known and self._last_open_error:
                    raise self._last_open_error  # one attempt serves all tasks that waited for it, because it may be slow
                if self._needs_open or self._backend.is_replaced():
                    try:
                        await self._open()
                    except StoreError as error:
                        self._last_open_error = error
                        raise

    @asynccontextmanager
    async def begin_read(self) -> AsyncIterator[AsyncConnection]:
        await self._reopen_if_lost()
        with self._translate_errors():
            async with self._engine.connect() as connection:
                yield connection

    @asynccontextmanager
    async def begin_write(self) -> AsyncIterator[AsyncConnection]:
        # Waiting writers hold no connection, so that readers can use them.
        async with self._writers:
            await self._reopen_if_lost()
            with self._translate_errors():
                async with self._writer.begin() as connection:
                    yield connection

    async def fetch_rows(self, query: Executable) -> Sequence[Row[Any]]:
        async with self.begin_read() as connection:
            return (await connection.execute(query)).all()

    async def append(self, table: Table, records: Sequence[msgspec.Struct]) -> None:
        """Insert all records, or none."""
        async with self.begin_write() as connection:
            for batch in split_batches(records):
                await self._backend.insert(connection, table, [to_row(record) for record in batch])

    async def fetch_newest(
        self, kind: type[Record], table: Table, *conditions: ColumnElement[bool], limit: int
    ) -> list[Record]:
        """Return the records that meet the conditions, newest first; for equal times, the last written first."""
        newest_first = (table.c.timestamp.desc(), table.c.id.desc())
        query = select_records(kind, table).where(*conditions).order_by(*newest_first).limit(limit)
        return [to_record(kind, row) for row in await self.fetch_rows(query)]

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            fault = self._backend.translate_error(error.orig or error)
            self._needs_open |= isinstance(fault, DamagedError)
            raise fault from error
        except StatementError as error:  # raised by a column type before the database was queried
            if isinstance(error.orig, StoreError):
                raise error.orig from error
            raise RecordError(f"the record cannot be stored: {error.orig}") from error
        except PoolTimeoutError as error:
            raise BusyError(f"{SETTING}: no connection became free in time; try again") from error
        except SQLAlchemyError as error:
            raise StoreError(f"{SETTING}: {' '.join(str(error).split())}") from error
