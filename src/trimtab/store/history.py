"""The history of recommendations and changes, per container, with author and reason: for the dashboard, and for undo.

The history records the past; the current state of a workload is read from the cluster.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, and_, or_

from trimtab.store.database import Database, build_conditions
from trimtab.store.tables import history

_MAX_ID = 2**63 - 1
"""The largest id of a database; SQLite's driver fails for larger ones."""


class HistoryRecord(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="record", tag="history"
):
    timestamp: float
    cluster: str
    namespace: str
    kind: str
    name: str
    container: str = ""
    """The container; empty if the entry is about the whole workload."""
    what: str
    """The kind of entry: `recommended`, `applied`, `reverted`, `killed`, …; any text is read, because old entries
    may have former names."""
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    who: str
    why: str
    event_key: str | None = None
    """The identity of an observed event, which a cluster's history has once; None if there may be equal entries."""
    transition: str = ""
    """The id of the transition that the entry is about; empty for other entries, and those of former versions."""
    id: int = 0
    """The id that the store assigns; 0 before."""


class HistoryRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, records: Sequence[HistoryRecord]) -> None:
        """Insert all records, or none. A record whose `event_key` the cluster's history has already is left out."""
        await self._database.append(history, records)

    async def get(self, entry_id: int, *, cluster: str | None = None) -> HistoryRecord | None:
        """Return the entry with this id; with `cluster`, only if it belongs to that one of the clusters that share the store."""
        if entry_id > _MAX_ID:
            return None
        conditions = build_conditions(history, since=None, until=None, cluster=cluster)
        found = await self._database.fetch_newest(
            HistoryRecord, history, history.c.id == entry_id, *conditions, limit=1
        )
        return found[0] if found else None

    async def find(
        self,
        *,
        cluster: str | None = None,
        namespace: str | None = None,
        kind: str | None = None,
        name: str | None = None,
        container: str | None = None,
        what: str | Sequence[str] | None = None,
        since: float | None = None,
        until: float | None = None,
        older_than: HistoryRecord | None = None,
        after_id: int = 0,
        limit: int = 100,
    ) -> list[HistoryRecord]:
        """Return entries newest first; pass the last entry of a page as `older_than` to get the next page.

        `after_id` leaves out entries that were written before the one with this id, or are that one.
        """
        conditions = build_conditions(
            history,
            since=since,
            until=until,
            cluster=cluster,
            namespace=namespace,
            kind=kind,
            name=name,
            container=container,
            what=what,
        )
        if older_than:
            conditions.append(_is_older_than(older_than))
        if after_id:
            conditions.append(history.c.id > after_id)
        return await self._database.fetch_newest(HistoryRecord, history, *conditions, limit=limit)


def _is_older_than(entry: HistoryRecord) -> ColumnElement[bool]:
    timestamp, number = history.c.timestamp, history.c.id
    # The first condition is redundant, but lets both databases use the index.
    return and_(
        timestamp <= entry.timestamp,
        or_(timestamp < entry.timestamp, number < entry.id),
    )
