"""The learned state of a strategy, as bytes.

There is one state per key; a save replaces the previous one atomically, so that a reader finds the old or the new
one, never a mixture. The bytes are opaque: they are only stored, and rejected if their checksum does not match.
"""

import asyncio
import hashlib
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from trimtab.store.database import Database, select_records, to_record, to_row
from trimtab.store.errors import DamagedStateError
from trimtab.store.tables import states

_KEY = ("cluster", "strategy", "shard")


class StateKey(msgspec.Struct, frozen=True):
    cluster: str
    strategy: str
    shard: str = ""
    """The part of the state, if a strategy's containers are divided into several."""


class StateSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of a state, without its bytes."""

    cluster: str
    strategy: str
    shard: str
    version: int
    timestamp: float
    size: int


class StoredState(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="state"):
    cluster: str
    strategy: str
    shard: str
    version: int
    """The number of saves under this key."""
    timestamp: float
    sha256: str
    data: bytes

    @property
    def key(self) -> StateKey:
        return StateKey(self.cluster, self.strategy, self.shard)

    def is_intact(self) -> bool:
        return hashlib.sha256(self.data).hexdigest() == self.sha256


class StateRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, key: StateKey, data: bytes, *, timestamp: float) -> int:
        """Replace the state of this key and return its new version."""
        digest = (await asyncio.to_thread(hashlib.sha256, data)).hexdigest()
        state = StoredState(
            cluster=key.cluster,
            strategy=key.strategy,
            shard=key.shard,
            version=1,
            timestamp=timestamp,
            sha256=digest,
            data=data,
        )
        async with self._database.begin_write() as connection:
            row = _insert(connection, state)
            upsert = row.on_conflict_do_update(
                index_elements=_KEY, set_={**_select_replaced_columns(row), "version": states.c.version + 1}
            )
            return int((await connection.execute(upsert.returning(states.c.version))).scalar_one())

    async def load(self, key: StateKey) -> StoredState | None:
        """Return the state of this key, or None; raise `DamagedStateError` if it does not match its checksum."""
        found = await self._database.fetch_rows(
            select_records(StoredState, states).where(*_build_key_conditions(key))
        )
        if not found:
            return None
        state = to_record(StoredState, found[0])
        if not await asyncio.to_thread(state.is_intact):
            raise DamagedStateError(
                f"the state that strategy {key.strategy!r} learned of cluster {key.cluster!r},"
                f" shard {key.shard!r}, does not match its checksum; delete it, and the strategy learns it again"
            )
        return state

    async def list_summaries(self) -> list[StateSummary]:
        """List the states by key."""
        key = [states.c[name] for name in _KEY]
        size = func.length(states.c.data).label("size")
        query = select(*key, states.c.version, states.c.timestamp, size).order_by(*key)
        return [to_record(StateSummary, row) for row in await self._database.fetch_rows(query)]

    async def forget(self, key: StateKey) -> None:
        async with self._database.begin_write() as connection:
            await connection.execute(delete(states).where(*_build_key_conditions(key)))


def _build_key_conditions(key: StateKey) -> list[ColumnElement[bool]]:
    return [states.c[name] == getattr(key, name) for name in _KEY]


async def upsert_if_newer(connection: AsyncConnection, state: StoredState) -> None:
    """Store a state from another store, unless this store has a later one."""
    row = _insert(connection, state)
    newer = states.c.timestamp < row.excluded.timestamp
    await connection.execute(
        row.on_conflict_do_update(index_elements=_KEY, set_=_select_replaced_columns(row), where=newer)
    )


def _insert(connection: AsyncConnection, state: StoredState) -> sqlite.Insert | postgresql.Insert:
    # Both databases have the same "on conflict", but SQLAlchemy has a separate insert for each.
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    return insert(states).values(to_row(state))


def _select_replaced_columns(row: sqlite.Insert | postgresql.Insert) -> dict[str, ColumnElement[Any]]:
    """Return the columns that a conflict replaces: all except the key and the id."""
    return {name: row.excluded[name] for name in ("version", "timestamp", "sha256", "data")}
