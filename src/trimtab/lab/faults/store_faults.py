"""Faults of the store: a file that is locked, full, away or damaged.

A store that is rolled back or damaged while nobody uses it is a fault of the process (`process_faults`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection

from trimtab.lab.faults.gate import ProcessGate
from trimtab.lab.faults.plan import FaultInjector, FaultKind
from trimtab.lab.faults.single_thread import connect_to_sqlite
from trimtab.store import BusyError, FullError, Store, StoreError, UnavailableError
from trimtab.store.database import Backend, Database
from trimtab.store.store import select_backend

_ERRORS: dict[str, tuple[type[StoreError], str, str]] = {
    "store-locked": (BusyError, "database is locked", "Another process holds the lock of the store."),
    "store-full": (
        FullError,
        "database or disk is full",
        "The disk of the store is full: it can be read only.",
    ),
    "store-away": (UnavailableError, "disk I/O error", "The disk of the store fails."),
}

KINDS = tuple(FaultKind(name=name, sentence=sentence) for name, (_, _, sentence) in _ERRORS.items())


class FaultyDatabase(Database):
    """The database of one process, on the file that all share."""

    injector: FaultInjector | None = None
    gate: ProcessGate | None = None

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        event.listen(self._engine.sync_engine, "do_connect", _connect_in_this_thread)

    @asynccontextmanager
    async def begin_read(self) -> AsyncIterator[AsyncConnection]:
        self._fail("read", "store-locked", "store-away")
        async with super().begin_read() as connection:
            yield connection
        if self.gate:
            self.gate.pass_through("read store")

    @asynccontextmanager
    async def begin_write(self) -> AsyncIterator[AsyncConnection]:
        self._fail("write", *_ERRORS)
        async with super().begin_write() as connection:
            yield connection
            # Killed in the middle of a transaction, it is rolled back.
            if self.gate:
                self.gate.pass_through("commit store")

    def _fail(self, what: str, *kinds: str) -> None:
        if self.gate:
            self.gate.pass_through(f"{what} store")
        for kind in kinds:
            if self.injector and (fault := self.injector.hit(kind)):
                self.injector.record(fault, what)
                error, message, _ = _ERRORS[kind]
                raise error(f"store: {message}")


def _connect_in_this_thread(_dialect: Any, _record: Any, _arguments: Any, settings: dict[str, Any]) -> None:
    settings["async_creator_fn"] = connect_to_sqlite


@asynccontextmanager
async def open_store(path: Path, injector: FaultInjector, gate: ProcessGate) -> AsyncIterator[Store]:
    """Open the store of one process; faults apply once it is open."""
    async with FaultyDatabase.open(select_backend(path)) as database:
        database.injector, database.gate = injector, gate
        yield Store(database)
