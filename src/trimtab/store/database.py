"""One way to read and one way to write, whatever database is behind it.

Readers see what is committed and never wait for a writer. A writer's block is one transaction: all of it is kept or
nothing. What the drivers raise leaves here as a `StoreError`. What was damaged, or is not what was opened any more, is
opened anew at the next use: who runs for months need not be restarted. Which rows there are is for the repositories.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, ClassVar, Protocol, Self

import msgspec
import structlog
from sqlalchemy import ColumnElement, Executable, Row, Table
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
from trimtab.store.row_mapping import Record, batches, record_of, row_of, select_records
from trimtab.store.schema import check, upgrade

log = structlog.get_logger(__name__)

WRITING = "trimtab_writing"
"""The execution option by which a backend tells a writer's transaction from a reader's."""


class Backend(Protocol):
    """What differs between the databases."""

    writers: ClassVar[int]
    """How many of our tasks may write at once."""

    migration_lock: ClassVar[str | None]
    """The statement that keeps a second replica from migrating too, where beginning to write does not."""

    only_to_read: bool
    """Whether whatever is there is left as it is."""

    def engine(self) -> AsyncEngine: ...

    def opening(self) -> AbstractAsyncContextManager[None]:
        """Held while the store is opened, after whatever must come first was seen to."""
        ...

    def replaced(self) -> bool:
        """Whether what was opened is no longer what others would find there."""
        ...

    async def insert(self, connection: AsyncConnection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        """Add many rows as quickly as the database can; there is one at least."""
        ...

    def fault(self, error: BaseException) -> StoreError:
        """What an error of the driver means to the user."""
        ...


class Database:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        with self._translated():
            self._engine = backend.engine()
        self._writer = self._engine.execution_options(**{WRITING: True})
        self._writers = asyncio.Semaphore(backend.writers)
        self._opening = asyncio.Lock()
        self._to_open = True
        self._failure: StoreError | None = None
        """Why it could not be opened anew the last time."""

    @classmethod
    @asynccontextmanager
    async def open(cls, backend: Backend, *, patient: bool = False) -> AsyncIterator[Self]:
        """Open it; with `patient`, what is away, busy or full at present at the first use that finds it well.

        An operator has to relieve and revert whether its store works or not.
        """
        database = cls(backend)
        try:
            try:
                await database._open()
            except (UnavailableError, BusyError, FullError) as error:
                if not patient:
                    raise
                log.warning("store.away", error=str(error))
            yield database
        finally:
            await database.close()

    async def close(self) -> None:
        await self._engine.dispose()

    async def _open(self) -> None:
        async with self._backend.opening():
            await self._engine.dispose()  # whatever is not in use: of a file that lies there no more
            with self._translated():
                if self._backend.only_to_read:
                    async with self._engine.connect() as connection:
                        await check(connection)
                else:
                    async with self._writer.begin() as connection:
                        await upgrade(connection, lock=self._backend.migration_lock)
            self._to_open = False

    async def _open_anew_if_lost(self) -> None:
        if self._to_open or self._backend.replaced():
            known = self._failure
            async with self._opening:
                if self._failure is not known and self._failure:
                    raise self._failure  # one try is for all who waited for it: it may take its time
                if self._to_open or self._backend.replaced():
                    try:
                        await self._open()
                    except StoreError as error:
                        self._failure = error
                        raise

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        await self._open_anew_if_lost()
        with self._translated():
            async with self._engine.connect() as connection:
                yield connection

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        # Waiting writers hold no connection: those are left to the readers.
        async with self._writers:
            await self._open_anew_if_lost()
            with self._translated():
                async with self._writer.begin() as connection:
                    yield connection

    async def rows(self, query: Executable) -> Sequence[Row[Any]]:
        async with self.reading() as connection:
            return (await connection.execute(query)).all()

    async def append(self, table: Table, records: Sequence[msgspec.Struct]) -> None:
        """Keep all of them, or none."""
        async with self.writing() as connection:
            for batch in batches(records):
                await self._backend.insert(connection, table, [row_of(record) for record in batch])

    async def newest(
        self, kind: type[Record], table: Table, *conditions: ColumnElement[bool], limit: int
    ) -> list[Record]:
        """Those that meet the conditions, newest first; of the same time, the one written last."""
        newest_first = (table.c.timestamp.desc(), table.c.id.desc())
        query = select_records(kind, table).where(*conditions).order_by(*newest_first).limit(limit)
        return [record_of(kind, row) for row in await self.rows(query)]

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            fault = self._backend.fault(error.orig or error)
            self._to_open |= isinstance(fault, DamagedError)
            raise fault from error
        except StatementError as error:  # raised by a column's type, before the database was asked
            if isinstance(error.orig, StoreError):
                raise error.orig from error
            raise RecordError(f"this record cannot be kept: {error.orig}") from error
        except PoolTimeoutError as error:
            raise BusyError(f"{SETTING}: no connection became free in time; try again") from error
        except SQLAlchemyError as error:
            raise StoreError(f"{SETTING}: {' '.join(str(error).split())}") from error
