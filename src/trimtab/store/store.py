"""The open store: one repository per kind of record, over one database.

It contains learned data, never the state of the cluster. Losing it costs time, not correctness.
"""

import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Self

from trimtab.store import archive
from trimtab.store.database import Database
from trimtab.store.effects import EffectRepository
from trimtab.store.events import PlannerEventRepository
from trimtab.store.history import HistoryRepository
from trimtab.store.retention import PruneResult, Retention, prune
from trimtab.store.states import StateRepository
from trimtab.store.url import select_backend


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
