"""The store, opened: a repository a noun, over one database.

It holds what was learned, never the truth about the cluster. Losing it costs time, not correctness.
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
    """`async with Store.open("trimtab.db") as store: await store.history.find(name="shop")`."""

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
        """Open the store at a path or URL, creating or migrating it as need be; any failure is a `StoreError`.

        With `patient`, a server that is away is none: each use fails until it is there. `only_to_read` creates, migrates and
        sets aside nothing: what lies there may be another's, and is left as it is.
        """
        async with Database.open(
            select_backend(address, read_only=read_only), allow_unavailable=allow_unavailable
        ) as database:
            yield cls(database)

    async def prune(self, retention: Retention, *, now: float) -> PruneResult:
        """Forget what is older or more than is to be kept."""
        return await prune(self._database, retention, now=now)

    def export_lines(self) -> AsyncIterator[bytes]:
        """All records as JSON lines."""
        return archive.export_records(self._database)

    async def import_lines(self, lines: Iterable[bytes] | AsyncIterable[bytes]) -> int:
        """Add what another store exported, all or nothing; how many records there were."""
        return await archive.import_lines(self._database, lines)
