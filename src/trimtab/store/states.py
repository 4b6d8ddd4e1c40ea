"""What a strategy has learned, as the bytes that it makes of itself.

One state a key; a save replaces the one before in a single step, so that a reader finds the old or the new,
never a mixture. The bytes are a strategy's own affair: here they are only kept, and refused when they are not
the bytes that were saved.
"""

import asyncio
import hashlib
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from trimtab.store.database import Database
from trimtab.store.errors import DamagedStateError
from trimtab.store.row_mapping import select_records, to_record, to_row
from trimtab.store.tables import states

_KEY = ("cluster", "strategy", "shard")


class StateKey(msgspec.Struct, frozen=True):
    cluster: str
    strategy: str
    shard: str = ""
    """Which part, where a strategy's containers are divided."""


class StateSummary(msgspec.Struct, frozen=True, kw_only=True):
    """That there is a state, without its bytes."""

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
    """Counts the saves under this key."""
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
        """Replace what was learned under this key; the version that it now has."""
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
        """The latest, or None; `DamagedStateError` where it is not what was saved."""
        found = await self._database.fetch_rows(
            select_records(StoredState, states).where(*_build_key_conditions(key))
        )
        if not found:
            return None
        state = to_record(StoredState, found[0])
        if not await asyncio.to_thread(state.is_intact):
            raise DamagedStateError(
                f"the state that strategy {key.strategy!r} learned of cluster {key.cluster!r},"
                f" shard {key.shard!r}, does not match its checksum; forget it or save over it, and learn anew"
            )
        return state

    async def list_summaries(self) -> list[StateSummary]:
        """Which states there are, by key."""
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
    """Keep a state from elsewhere as it is, unless a later one is here."""
    row = _insert(connection, state)
    newer = states.c.timestamp < row.excluded.timestamp
    await connection.execute(
        row.on_conflict_do_update(index_elements=_KEY, set_=_select_replaced_columns(row), where=newer)
    )


def _insert(connection: AsyncConnection, state: StoredState) -> sqlite.Insert | postgresql.Insert:
    # Both databases speak "on conflict" alike, and SQLAlchemy has it once for each.
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    return insert(states).values(to_row(state))


def _select_replaced_columns(row: sqlite.Insert | postgresql.Insert) -> dict[str, ColumnElement[Any]]:
    """What a conflict replaces: all but the key and the id."""
    return {name: row.excluded[name] for name in ("version", "timestamp", "sha256", "data")}
