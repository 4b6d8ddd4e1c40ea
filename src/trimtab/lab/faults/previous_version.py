"""The state that the version before this one left: an upgrade of the operator continues from it."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec

from trimtab.api.intent import ActionStatus, EffectStatus, ObjectiveStatus, PlanStatus
from trimtab.store.schema import VERSION_TABLE

_OLD_NAMES = {
    new: old
    for model in (ObjectiveStatus, PlanStatus, ActionStatus, EffectStatus)
    for old, new in model.renamed.items()
}


def downgrade_store(store: Path) -> None:
    """Give the file of a store the schema that it had before its last migration."""
    # A damaged file stays as it is.
    with (
        suppress(sqlite3.DatabaseError),
        closing(sqlite3.connect(store, isolation_level=None)) as connection,
    ):
        connection.execute("ALTER TABLE trimtab_history DROP COLUMN transition")
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '0003'")  # noqa: S608 - a constant


def downgrade_status(status: bytes) -> bytes:
    """Return the status of an Intent with the names that its fields had."""
    return msgspec.json.encode(_rename(msgspec.json.decode(status)))


def _rename(value: Any) -> Any:
    match value:
        case dict():
            return {_OLD_NAMES.get(name, name): _rename(each) for name, each in value.items()}
        case list():
            return [_rename(each) for each in value]
    return value
