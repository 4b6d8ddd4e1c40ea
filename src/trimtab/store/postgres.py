"""The store in PostgreSQL: for replicas that share it.

A connection that was lost is noticed and made anew at its next use, so a restarted server costs one failed write
at most. Waits are bounded: a server that is away is reported within seconds, and one that has frozen within a minute,
not after TCP's own hours. Nothing outlives a transaction on its connection (no prepared statement, SET, LISTEN or session lock), so that a pooler
may stand in between. Tables that are gone, as after a restore of something else, are made anew at the next use.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from sqlalchemy import ARRAY, URL, Table, bindparam, func, insert, select
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
"""What libpq is told unless the URL says otherwise."""

_AWAY = (UnavailableError, "check that the server runs and can be reached")
_ACCESS = (AccessError, "check the user, its password and its rights")
_CROWDED = (BusyError, "raise the server's max_connections or try again")
_DATABASE = (AddressError, "create the database or name another")
_OPTION = (AddressError, "correct what stands after the '?'")
_RECORD = (RecordError, "this record cannot be kept")

_BY_STATE: dict[str, tuple[type[StoreError], str]] = {
    "08": _AWAY,
    "22": _RECORD,
    "23": _RECORD,
    "25006": (UnavailableError, "the server takes no writes; name the primary"),
    "28": _ACCESS,
    "3D": _DATABASE,
    "40": (BusyError, "try again"),
    "42501": _ACCESS,
    "42P01": (DamagedError, "what is gone is made anew at the next use"),
    "53": (FullError, "give the server more room or keep less"),
    "53300": _CROWDED,
    "54": _RECORD,
    "55": (BusyError, "try again"),
    "57": _AWAY,
    "58": (UnavailableError, "check the server's disk"),
    "XX": (DamagedError, "the server reports damage; ask its administrator"),
}
"""By SQLSTATE or its class."""

_BY_WORDS: dict[str, tuple[type[StoreError], str]] = {
    "invalid connection option": _OPTION,
    "invalid integer value": _OPTION,
    "invalid sslmode value": _OPTION,
    "too many": _CROWDED,
    "remaining connection slots": _CROWDED,
    "authentication failed": _ACCESS,
    "no password supplied": _ACCESS,
    "pg_hba.conf": _ACCESS,
    'FATAL: role "': _ACCESS,
    'FATAL: database "': _DATABASE,
}
"""Before a connection stands no SQLSTATE reaches us, only words."""


class PostgreSQL:
    writers: ClassVar[int] = 4
    # Any number will do that other programs in the same database do not use: this one is "trimtab" in ASCII.
    migration_lock: ClassVar[str | None] = f"SELECT pg_advisory_xact_lock({int.from_bytes(b'trimtab')})"

    def __init__(self, url: URL, *, only_to_read: bool = False) -> None:
        self.only_to_read = only_to_read
        self._url = url.set(drivername="postgresql+psycopg", query={**_DEFAULTS, **url.query})
        self._shown = url.set(query={}).render_as_string(hide_password=True)

    def engine(self) -> AsyncEngine:
        try:
            from trimtab.store.timeout_connection import Line  # needs psycopg

            return create_async_engine(
                self._url,
                connect_args={
                    "async_creator_fn": Line.connect,
                    # Behind a pooler such as PgBouncer each transaction may go to another connection of the server, which
                    # knows nothing of what was prepared on the last one.
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
    async def opening(self) -> AsyncIterator[None]:
        """Nothing to see to: the server looks after its files, and the migration takes its own lock."""
        yield

    def replaced(self) -> bool:
        return False  # a connection to another server is another connection

    async def insert(self, connection: AsyncConnection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        # An array a column: five times quicker than psycopg's executemany.
        names = list(rows[0])
        # One dimension, said: a list in a JSON column is a value, not a second one.
        types = (ARRAY(table.c[name].type, dimensions=1) for name in names)
        unnested = (func.unnest(bindparam(name, type_=kind)) for name, kind in zip(names, types, strict=True))
        arrays = {name: [row[name] for row in rows] for name in names}
        await connection.execute(insert(table).from_select(names, select(*unnested)), arrays)

    def fault(self, error: BaseException) -> StoreError:
        said = " ".join(str(error).split())
        outcome, advice = _meaning(getattr(error, "sqlstate", None), said)
        return outcome(f"{SETTING}: {self._shown}: {said}; {advice}")


def _meaning(state: str | None, said: str) -> tuple[type[StoreError], str]:
    if state:
        return (
            _BY_STATE.get(state) or _BY_STATE.get(state[:2]) or (StoreError, "see what the server says of it")
        )
    return next((meaning for words, meaning in _BY_WORDS.items() if words in said), _AWAY)
