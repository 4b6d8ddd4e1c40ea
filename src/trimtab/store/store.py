"""The open store: one repository per kind of record, over the database that a path or URL selects.

It contains learned data, never the state of the cluster. Losing it costs time, not correctness.
"""

import os
import re
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from trimtab.store import archive
from trimtab.store.database import Backend, Database
from trimtab.store.errors import SETTING, AddressError
from trimtab.store.history import HistoryRepository
from trimtab.store.planner_records import EffectRepository, PlannerEventRepository
from trimtab.store.postgres import PostgreSQL
from trimtab.store.retention import PruneResult, Retention, prune
from trimtab.store.sqlite import SQLite
from trimtab.store.states import StateRepository

_FORMS = "give the path of a file, sqlite:///FILE or postgresql://USER@HOST/DATABASE"


def select_backend(address: str | os.PathLike[str], *, read_only: bool = False) -> Backend:
    """Return the database at a path or URL; raise `AddressError` if it is neither."""
    # A mistyped URL must not be treated as a file name: the error would show its password.
    if not isinstance(address, str) or not (":/" in address or "@" in address):
        return _select_sqlite(os.fspath(address), read_only=read_only)
    try:
        url = make_url(address)
    except (ArgumentError, ValueError) as error:
        raise _make_address_error(address) from error
    match url.drivername.partition("+")[0]:
        case "sqlite" if not (url.host or url.query):
            return _select_sqlite(url.database or "", read_only=read_only)
        case "postgresql" | "postgres":
            return PostgreSQL(url, read_only=read_only)
        case _:
            raise _make_address_error(address)


def _select_sqlite(path: str, *, read_only: bool) -> SQLite:
    if path in {"", ":memory:"} or "\0" in path:
        raise _make_address_error(path)  # a database in memory would not persist
    return SQLite(Path(path), read_only=read_only)


def _make_address_error(address: str) -> AddressError:
    # Hide the password in any mistyped URL: it is before the last @, or in an option.
    shown = re.sub(r"^(\w*:/*)?.*@", r"\1***@", address, flags=re.DOTALL)
    path, mark, options = shown.partition("?")
    shown = path + mark + re.sub(r"=[^&]*", "=***", options)
    return AddressError(f"{SETTING}: {shown!r} is not a supported store; {_FORMS}")


class Store:
    """The store; use it as `async with Store.open("trimtab.db") as store: await store.history.find(name="shop")`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.states = StateRepository(database)
        self.effects = EffectRepository(database)
        self.events = PlannerEventRepository(database)
        self.history = HistoryRepository(database)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, address: str | os.PathLike[str], *, allow_unavailable: bool = False, read_only: bool = False
    ) -> AsyncIterator[Self]:
        """Open the store at a path or URL, creating or migrating it if necessary; any failure is a `StoreError`.

        With `allow_unavailable`, an unavailable server is not an error: each use fails until it responds. With
        `read_only`, nothing is created, migrated or set aside, because the store may belong to another process.
        """
        async with Database.open(
            select_backend(address, read_only=read_only), allow_unavailable=allow_unavailable
        ) as database:
            yield cls(database)

    async def prune(self, retention: Retention, *, now: float) -> PruneResult:
        """Delete the rows that exceed the retention limits."""
        return await prune(self._database, retention, now=now)

    def export_lines(self) -> AsyncIterator[bytes]:
        """Export all records as JSON lines."""
        return archive.export_records(self._database)

    async def import_lines(self, lines: Iterable[bytes] | AsyncIterable[bytes]) -> int:
        """Import the lines of another store, all or none, and return the number of records."""
        return await archive.import_lines(self._database, lines)
