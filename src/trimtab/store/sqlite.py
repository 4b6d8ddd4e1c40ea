"""The store as one SQLite file, the default.

It is in WAL mode, so writers do not block readers; a commit survives the death of the process, and a power loss costs
at most the last commits, never the file. A damaged file is set aside and a new one created: the learned state is
lost, but the process starts. A lock, a missing permission or a full disk is never treated as damage. SQLite itself
would continue with a file that another process moved, removed or set aside, so the file is identified by its inode.
"""

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any, ClassVar

import structlog
from sqlalchemy import URL, Connection, Table, event
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from trimtab.store.database import WRITE_OPTION
from trimtab.store.errors import (
    SETTING,
    AccessError,
    AddressError,
    BusyError,
    DamagedError,
    FullError,
    RecordError,
    StoreError,
    UnavailableError,
)

_log = structlog.get_logger(__name__)

_LOCK_TIMEOUT = 30.0
"""The seconds to wait for the lock of another process."""

_LOCK_RETRY_INTERVAL = 0.05
"""The seconds between two attempts at the folder's lock."""

_PRAGMAS = ("PRAGMA synchronous = NORMAL", "PRAGMA journal_size_limit = 67108864")

_MAGIC = b"SQLite format 3\0"
_SUFFIXES = frozenset({".db", ".sqlite", ".sqlite3"})

_DAMAGED = (DamagedError, "it is renamed at the next use, and learning starts over")
_BUSY = (BusyError, "another process holds it; try again")
_ACCESS = (AccessError, "make the file and its folder writable for this user, or name another")
_RECORD = (RecordError, "the record is invalid and was not stored")
_ERRORS_BY_CODE: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_CANTOPEN: _ACCESS,
    sqlite3.SQLITE_PERM: _ACCESS,
    sqlite3.SQLITE_READONLY: _ACCESS,
    sqlite3.SQLITE_FULL: (FullError, "free disk space"),
    sqlite3.SQLITE_IOERR: (UnavailableError, "check the disk"),
    sqlite3.SQLITE_CONSTRAINT: _RECORD,
    sqlite3.SQLITE_TOOBIG: _RECORD,
}


class SQLite:
    max_writers: ClassVar[int] = 1
    migration_lock: ClassVar[str | None] = None  # beginning to write takes an exclusive lock

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.read_only = read_only
        # A symbolic link stays one when the file behind it is set aside.
        self.path = Path(os.path.realpath(path))
        if os.path.isdir(self.path):  # noqa: PTH112, Path's own raises where it may not look
            raise AddressError(f"{SETTING}: {path} is a folder; name a file in it")
        self._opened_inode: tuple[int, int] | None = None

    def create_engine(self) -> AsyncEngine:
        found, options = str(self.path), dict[str, str]()
        if self.read_only:
            found, options = f"{self.path.as_uri()}?mode=ro", {"uri": "true"}
        engine = create_async_engine(
            URL.create("sqlite+aiosqlite", database=found, query=options),
            connect_args={"timeout": _LOCK_TIMEOUT, "isolation_level": None},
            pool_size=5,
            max_overflow=0,
        )
        event.listen(engine.sync_engine, "connect", _configure)
        event.listen(engine.sync_engine, "begin", _begin)
        event.listen(engine.sync_engine, "invalidate", _discard_transaction)
        return engine

    @asynccontextmanager
    async def prepare_open(self) -> AsyncIterator[None]:
        """Exclude all other processes that open a store in this folder: two must not set the same file aside."""
        if self.read_only:
            self._opened_inode = self._read_inode()
            if self._opened_inode is None:
                raise AddressError(
                    f"{SETTING}: {self.path}: the file does not exist; name the operator's store"
                )
            yield
            return
        folder = self._open_folder()
        try:
            await self._lock(folder)
            if self._opened_inode and self.is_replaced():
                _log.warning(
                    "store.file_replaced", path=str(self.path), action="opens the file that is there now"
                )
            await asyncio.to_thread(self._prepare)
            self._opened_inode = self._read_inode()
            yield
        finally:
            os.close(folder)

    def is_replaced(self) -> bool:
        return self._read_inode() != self._opened_inode

    def _read_inode(self) -> tuple[int, int] | None:
        """Return the identity of the file at the path; None if there is none."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    async def insert(self, connection: AsyncConnection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        # Another replica may have stored the same event before: its key is then known, and the row is left out.
        await connection.execute(insert(table).on_conflict_do_nothing(), rows)

    def translate_error(self, error: BaseException) -> StoreError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest tells which of them
        if code == sqlite3.SQLITE_IOERR and self._disk_is_full():
            code = (
                sqlite3.SQLITE_FULL
            )  # SQLite reports a full disk itself only if it was the file that could not grow
        outcome, advice = _ERRORS_BY_CODE.get(
            code, (StoreError, "see the error above in the documentation of SQLite")
        )
        if str(error).startswith("no such table"):  # which has no code of its own
            outcome, advice = DamagedError, "it is created again at the next use"
        if self.read_only and outcome is DamagedError:
            advice = "the file is not a store, or it is damaged; it was not changed"
        return outcome(f"{SETTING}: {self.path}: {error}; {advice}")

    def _disk_is_full(self) -> bool:
        try:
            return os.statvfs(self.path.parent).f_bavail == 0
        except OSError:  # the folder disappeared with its disk
            return False

    def _open_folder(self) -> int:
        folder = self.path.parent
        try:
            return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise AddressError(
                f"{SETTING}: the folder {folder} does not exist; create it or name another file"
            ) from error
        except OSError as error:
            raise AccessError(
                f"{SETTING}: {folder}: {error.strerror}; let this user read and write it, or name another file"
            ) from error

    async def _lock(self, folder: int) -> None:
        for _ in range(round(_LOCK_TIMEOUT / _LOCK_RETRY_INTERVAL)):
            try:
                return fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                await asyncio.sleep(_LOCK_RETRY_INTERVAL)
            except OSError as error:
                raise AccessError(
                    f"{SETTING}: {self.path.parent} cannot be locked: {error.strerror}; name a file on a local disk"
                ) from error
        raise BusyError(f"{SETTING}: {self.path}: another process has it locked; try again")

    def _prepare(self) -> None:
        try:
            self._check()
        except DamagedError as error:
            if not self._is_database_file():
                raise AddressError(
                    f"{SETTING}: {self.path} is not a database and was not changed; name another file"
                ) from error
            self._set_aside(reason=str(error.__cause__ or error))
            self._check()

    def _is_database_file(self) -> bool:
        """Return True if a file is a database or named like one: a mistyped address may name an unrelated file."""
        with self.path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC or self.path.suffix in _SUFFIXES

    def _check(self) -> None:
        """Read every page once, so that damage is found now and not at every start in the same query."""
        try:
            with closing(
                sqlite3.connect(self.path, timeout=_LOCK_TIMEOUT, isolation_level=None)
            ) as connection:
                (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                if verdict != "ok":
                    raise DamagedError(verdict)
                connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            raise self.translate_error(error) from error

    def _set_aside(self, *, reason: str) -> None:
        number = 1
        while (kept := self.path.with_name(f"{self.path.name}.damaged-{number}")).exists():
            number += 1
        # Rename the write-ahead log first: if it stayed, SQLite would replay it into the new file.
        try:
            for suffix in ("-wal", "-shm", ""):
                part = Path(f"{self.path}{suffix}")
                if part.exists():
                    part.rename(f"{kept}{suffix}")
        except OSError as error:
            raise AccessError(
                f"{SETTING}: {self.path} is damaged ({reason}) and cannot be set aside: {error.strerror};"
                " make its folder writable for this user, or name another file"
            ) from error
        _log.error(
            "store.damaged_file_set_aside",
            path=str(self.path),
            kept_as=str(kept),
            reason=reason,
        )


def _configure(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(pragma)
    cursor.close()


def _begin(connection: Connection) -> None:
    # A writer takes the lock at once. If it had read first, it could not wait for the lock any more, only fail.
    writing = connection.get_execution_options().get(WRITE_OPTION)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _discard_transaction(connection: Any, _record: Any, _error: BaseException | None) -> None:
    # The connection of a cancelled task is closed, but while a traceback still references its cursor, closing does
    # not end the transaction: the lock would stay until the garbage is collected.
    with suppress(asyncio.CancelledError, sqlite3.Error):
        connection.run_async(lambda driver: asyncio.shield(driver.rollback()))
