"""Retention of the store while an operator leads."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from trimtab.operator.leader import RetentionTask
from trimtab.store import HistoryRecord, Store

DAY = 86400.0


def history_record(day: int) -> HistoryRecord:
    where: dict[str, Any] = {"cluster": "c", "namespace": "shop", "kind": "Deployment", "name": "web"}
    return HistoryRecord(timestamp=day * DAY, what="applied", who="policy shop/web", why="", **where)


async def test_store_retention_prunes_and_retries_an_unavailable_store(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "trimtab.db") as store:
        retention = RetentionTask(store, now=lambda: 365 * DAY)
        await store.history.append([history_record(1), history_record(364)])
        with closing(sqlite3.connect(tmp_path / "trimtab.db")) as connection:
            connection.execute("ALTER TABLE trimtab_events RENAME TO away")
            await retention.prune()
            connection.execute("ALTER TABLE away RENAME TO trimtab_events")
        await retention.prune()
        assert [each.timestamp for each in await store.history.find()] == [364 * DAY]
