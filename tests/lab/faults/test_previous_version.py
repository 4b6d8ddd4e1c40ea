"""State of the version before this one: this version reads all of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from trimtab.kube.kinds.custom import upgrade_intent_status
from trimtab.lab.faults.previous_version import downgrade_status, downgrade_store
from trimtab.store import Store


async def test_store_of_the_previous_version_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Store.open(path):
        pass
    downgrade_store(path)
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.OperationalError):
        connection.execute("SELECT transition FROM trimtab_history")
    async with Store.open(path):
        pass
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("SELECT transition FROM trimtab_history")
        found = connection.execute("SELECT version_num FROM trimtab_schema").fetchall()
    assert found == [("0004",)], "there is a newer migration; undo that one in downgrade_store instead"


def test_status_of_the_previous_version_is_read() -> None:
    status = {
        "objectives": [{"name": "p99", "current": 1.0, "target": 0.5, "verdict": "Missed"}],
        "plan": {
            "purpose": "Reach",
            "actions": [{"actuator": "scaleOut", "description": "to 3"}],
            "executedAt": "2026-01-05T00:00:00Z",
            "effects": [{"objective": "p99", "observed": 0.4}],
        },
    }
    old = msgspec.json.decode(downgrade_status(msgspec.json.encode(status)))
    assert "performedAt" in old["plan"]
    assert old["objectives"][0]["wanted"] == 0.5
    assert upgrade_intent_status(old) == status
