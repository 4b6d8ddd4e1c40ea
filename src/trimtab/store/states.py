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
from trimtab.store.row_mapping import record_of, row_of, select_records
from trimtab.store.tables import states

_KEY = ("cluster", "strategy", "shard")


class StateKey(msgspec.Struct, frozen=True):
    cluster: str
    strategy: str
    shard: str = ""
    """Which part, where a strategy's containers are divided."""


class StateNote(msgspec.Struct, frozen=True, kw_only=True):
    """That there is a state, without its bytes."""

    cluster: str
    strategy: str
    shard: str
    version: int
    timestamp: float
    size: int


class State(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="state"):
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

    def intact(self) -> bool:
        return hashlib.sha256(self.data).hexdigest() == self.sha256


class States:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, key: StateKey, data: bytes, *, timestamp: float) -> int:
        """Replace what was learned under this key; the version that it now has."""
        digest = (await asyncio.to_thread(hashlib.sha256, data)).hexdigest()
        state = State(
            cluster=key.cluster,
            strategy=key.strategy,
            shard=key.shard,
            version=1,
            timestamp=timestamp,
            sha256=digest,
            data=data,
        )
        async with self._database.writing() as connection:
            row = _insert(connection, state)
            upsert = row.on_conflict_do_update(
                index_elements=_KEY, set_={**_content(row), "version": states.c.version + 1}
            )
            return int((await connection.execute(upsert.returning(states.c.version))).scalar_one())

    async def load(self, key: StateKey) -> State | None:
        """The latest, or None; `DamagedStateError` where it is not what was saved."""
        found = await self._database.rows(select_records(State, states).where(*_where(key)))
        if not found:
            return None
        state = record_of(State, found[0])
        if not await asyncio.to_thread(state.intact):
            raise DamagedStateError(
                f"the state that strategy {key.strategy!r} learned of cluster {key.cluster!r},"
                f" shard {key.shard!r}, does not match its checksum; forget it or save over it, and learn anew"
            )
        return state

    async def notes(self) -> list[StateNote]:
        """Which states there are, by key."""
        key = [states.c[name] for name in _KEY]
        size = func.length(states.c.data).label("size")
        query = select(*key, states.c.version, states.c.timestamp, size).order_by(*key)
        return [record_of(StateNote, row) for row in await self._database.rows(query)]

    async def forget(self, key: StateKey) -> None:
        async with self._database.writing() as connection:
            await connection.execute(delete(states).where(*_where(key)))


def _where(key: StateKey) -> list[ColumnElement[bool]]:
    return [states.c[name] == getattr(key, name) for name in _KEY]


async def adopt(connection: AsyncConnection, state: State) -> None:
    """Keep a state from elsewhere as it is, unless a later one is here."""
    row = _insert(connection, state)
    newer = states.c.timestamp < row.excluded.timestamp
    await connection.execute(row.on_conflict_do_update(index_elements=_KEY, set_=_content(row), where=newer))


def _insert(connection: AsyncConnection, state: State) -> sqlite.Insert | postgresql.Insert:
    # Both databases speak "on conflict" alike, and SQLAlchemy has it once for each.
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    return insert(states).values(row_of(state))


def _content(row: sqlite.Insert | postgresql.Insert) -> dict[str, ColumnElement[Any]]:
    """What a conflict replaces: all but the key and the id."""
    return {name: row.excluded[name] for name in ("version", "timestamp", "sha256", "data")}
