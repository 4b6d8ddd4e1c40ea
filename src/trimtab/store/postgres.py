"""The store in PostgreSQL, for replicas that share it.

A lost connection is detected and reopened at its next use, so a server restart costs one failed write at most. All
waits are bounded: an unavailable server is reported within seconds, a hanging one within a minute, not after TCP's
own hours. No state outlives a transaction on its connection (no prepared statement, SET, LISTEN or session lock), so
that a pooler may be in between. Missing tables, as after a restore of another backup, are created at the next use.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from sqlalchemy import ARRAY, URL, Table, bindparam, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

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

_DEFAULTS = {
    "application_name": "trimtab",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""The default parameters of libpq; the URL overrides them."""

_UNAVAILABLE = (UnavailableError, "check that the server runs and can be reached")
_ACCESS_DENIED = (AccessError, "check the user, its password and its rights")
_TOO_MANY_CONNECTIONS = (BusyError, "raise the server's max_connections or try again")
_UNKNOWN_DATABASE = (AddressError, "create the database or name another")
_INVALID_OPTION = (AddressError, "correct the options after the '?'")
_INVALID_RECORD = (RecordError, "the record is invalid and was not stored")

_ERRORS_BY_SQLSTATE: dict[str, tuple[type[StoreError], str]] = {
    "08": _UNAVAILABLE,
    "22": _INVALID_RECORD,
    "23": _INVALID_RECORD,
    "25006": (UnavailableError, "the server takes no writes; name the primary"),
    "28": _ACCESS_DENIED,
    "3D": _UNKNOWN_DATABASE,
    "40": (BusyError, "try again"),
    "42501": _ACCESS_DENIED,
    "42P01": (DamagedError, "missing tables are created again at the next use"),
    "53": (FullError, "give the server more disk space"),
    "53300": _TOO_MANY_CONNECTIONS,
    "54": _INVALID_RECORD,
    "55": (BusyError, "try again"),
    "57": _UNAVAILABLE,
    "58": (UnavailableError, "check the server's disk"),
    "XX": (DamagedError, "the server reports damage; ask its administrator"),
}
"""The errors by SQLSTATE or its class."""

_ERRORS_BY_MESSAGE: dict[str, tuple[type[StoreError], str]] = {
    "invalid connection option": _INVALID_OPTION,
    "invalid integer value": _INVALID_OPTION,
    "invalid sslmode value": _INVALID_OPTION,
    "too many": _TOO_MANY_CONNECTIONS,
    "remaining connection slots": _TOO_MANY_CONNECTIONS,
    "authentication failed": _ACCESS_DENIED,
    "no password supplied": _ACCESS_DENIED,
    "pg_hba.conf": _ACCESS_DENIED,
    'FATAL: role "': _ACCESS_DENIED,
    'FATAL: database "': _UNKNOWN_DATABASE,
}
"""The errors by text: before a connection is established there is no SQLSTATE."""


class PostgreSQL:
    max_writers: ClassVar[int] = 4
    # Any number works that other programs in the same database do not use: this one is "trimtab" in ASCII.
    migration_lock: ClassVar[str | None] = f"SELECT pg_advisory_xact_lock({int.from_bytes(b'trimtab')})"

    def __init__(self, url: URL, *, read_only: bool = False) -> None:
        self.read_only = read_only
        self._url = url.set(drivername="postgresql+psycopg", query={**_DEFAULTS, **url.query})
        self._safe_url = url.set(query={}).render_as_string(hide_password=True)

    def create_engine(self) -> AsyncEngine:
        try:
            from trimtab.store.timeout_connection import TimeoutConnection  # needs psycopg

            return create_async_engine(
                self._url,
                connect_args={
                    "async_creator_fn": TimeoutConnection.connect,
                    # Behind a pooler such as PgBouncer each transaction may use another server connection, which does
                    # not have the statements that were prepared on the previous one.
                    "prepare_threshold": None,
                },
                pool_size=5,
                max_overflow=5,
                pool_pre_ping=True,
                pool_recycle=1800,
            )
        except ModuleNotFoundError as error:
            raise AddressError(
                f"{SETTING}: PostgreSQL needs an extra package; run: pip install 'trimtab[postgres]'"
            ) from error

    @asynccontextmanager
    async def prepare_open(self) -> AsyncIterator[None]:
        """Do nothing: the server manages its files, and the migration takes its own lock."""
        yield

    def is_replaced(self) -> bool:
        return False  # a connection to another server is a new connection

    async def insert(self, connection: AsyncConnection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        # One array per column: five times faster than psycopg's executemany.
        names = list(rows[0])
        # Declare one dimension: a list in a JSON column is a value, not a second dimension.
        types = (ARRAY(table.c[name].type, dimensions=1) for name in names)
        unnested = (func.unnest(bindparam(name, type_=kind)) for name, kind in zip(names, types, strict=True))
        arrays = {name: [row[name] for row in rows] for name in names}
        # Another replica may have stored the same event before: its key is then known, and the row is left out.
        rows_of_arrays = insert(table).from_select(names, select(*unnested)).on_conflict_do_nothing()
        await connection.execute(rows_of_arrays, arrays)

    def translate_error(self, error: BaseException) -> StoreError:
        message = " ".join(str(error).split())
        outcome, advice = _classify_error(getattr(error, "sqlstate", None), message)
        return outcome(f"{SETTING}: {self._safe_url}: {message}; {advice}")


def _classify_error(state: str | None, message: str) -> tuple[type[StoreError], str]:
    if state:
        return (
            _ERRORS_BY_SQLSTATE.get(state)
            or _ERRORS_BY_SQLSTATE.get(state[:2])
            or (StoreError, "see the server's log")
        )
    return next((meaning for words, meaning in _ERRORS_BY_MESSAGE.items() if words in message), _UNAVAILABLE)
