"""The retention limits, and the deletion of older rows.

Rows are deleted in small batches, oldest first, so that no other task waits long. A static effect, which a person
gave, is never deleted. Clusters that share a store are counted separately, so that a busy cluster does not displace
the data of the others.
"""

import msgspec
from sqlalchemy import ColumnElement, Table, and_, delete, func, not_, or_, select, true

from trimtab.store.database import Database
from trimtab.store.tables import effects, events, history, states

_DELETE_BATCH = 5000
_DAY = 86400.0


class RetentionLimit(msgspec.Struct, frozen=True):
    """The limits of one table: a row is kept if both allow it; None means no limit."""

    age: float | None = None
    """The maximum age in seconds."""
    rows: int | None = None
    """The maximum number of rows per cluster; the newest are kept."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    states: RetentionLimit = RetentionLimit(age=180 * _DAY)
    """The limit of learned states, longer than any absence of a cluster that is expected to come back."""
    effects: RetentionLimit = RetentionLimit(age=90 * _DAY, rows=100_000)
    events: RetentionLimit = RetentionLimit(age=30 * _DAY, rows=1_000_000)
    """The limit of planner events, the largest table: one per intent and planning cycle. Effects are fitted from
    days, not months."""
    history: RetentionLimit = RetentionLimit(age=90 * _DAY, rows=1_000_000)


class PruneResult(msgspec.Struct, frozen=True):
    """The number of deleted rows per table."""

    states: int
    effects: int
    events: int
    history: int


async def prune(database: Database, retention: Retention, *, now: float) -> PruneResult:
    return PruneResult(
        states=await _prune_table(database, states, retention.states, now=now),
        effects=await _prune_table(
            database, effects, retention.effects, now=now, among=not_(effects.c.static)
        ),
        events=await _prune_table(database, events, retention.events, now=now),
        history=await _prune_table(database, history, retention.history, now=now),
    )


async def _prune_table(
    database: Database,
    table: Table,
    limit: RetentionLimit,
    *,
    now: float,
    among: ColumnElement[bool] | None = None,
) -> int:
    gone = 0
    candidates = true() if among is None else among
    if limit.age is not None:
        gone += await _delete_in_batches(database, table, candidates, table.c.timestamp < now - limit.age)
    if limit.rows is not None:
        by_cluster = select(table.c.cluster).where(candidates).group_by(table.c.cluster)
        for (cluster,) in await database.fetch_rows(by_cluster.having(func.count() > limit.rows)):
            among = and_(candidates, table.c.cluster == cluster)
            gone += await _prune_rows(database, table, among, rows=limit.rows)
    return gone


async def _prune_rows(database: Database, table: Table, among: ColumnElement[bool], *, rows: int) -> int:
    gone = 0
    newest_first = (table.c.timestamp.desc(), table.c.id.desc())
    query = select(table.c.timestamp, table.c.id).where(among).order_by(*newest_first)
    for first in await database.fetch_rows(query.offset(rows).limit(1)):
        older = table.c.timestamp < first.timestamp
        as_old = and_(table.c.timestamp == first.timestamp, table.c.id <= first.id)
        gone += await _delete_in_batches(database, table, among, or_(older, as_old))
    return gone


async def _delete_in_batches(database: Database, table: Table, *conditions: ColumnElement[bool]) -> int:
    bite = select(table.c.id).where(*conditions).order_by(table.c.timestamp, table.c.id).limit(_DELETE_BATCH)
    gone = 0
    while True:
        async with database.begin_write() as connection:
            deleted = (await connection.execute(delete(table).where(table.c.id.in_(bite)))).rowcount
        gone += deleted
        if deleted < _DELETE_BATCH:
            return gone
