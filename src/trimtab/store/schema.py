"""Upgrade the schema of an open database to the version of this code, or reject it.

An empty database gets the present tables at once. The migrations for any other are part of the package and run at every
opening, inside the opener's transaction: a partial migration is never visible, and of two replicas that open at once the
second finds the migration done.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    create_engine,
    insert,
    inspect,
    text,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from trimtab.store.errors import SETTING, AddressError, NewerSchemaError, StoreError
from trimtab.store.tables import metadata

if TYPE_CHECKING:
    from alembic.config import Config

log = structlog.get_logger(__name__)

VERSION_TABLE = "trimtab_schema"
_MIGRATIONS = Path(__file__).parent / "migrations"
_version_table = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
"""The table in which Alembic keeps the version."""


async def upgrade_schema(connection: AsyncConnection, *, lock: str | None) -> None:
    """Migrate within the connection's transaction; `lock` is the statement that excludes other processes."""
    if lock:
        await connection.execute(text(lock))
    await connection.run_sync(_upgrade)


async def check_schema(connection: AsyncConnection) -> None:
    """Check that the schema can be read without a migration; nothing is written."""
    await connection.run_sync(_check)


def _check(connection: Connection) -> None:
    if _is_current(connection):
        return
    _, found, newest = _read_versions(connection)
    if found is None:
        raise AddressError(f"{SETTING}: the database contains no Trimtab store; name another")
    if found != newest:
        raise StoreError(
            f"{SETTING}: the store's schema is version {found}, but {newest} is needed; "
            "start the operator of this version, which upgrades it, or use the version that wrote it"
        )


def _upgrade(connection: Connection) -> None:
    if _is_empty(connection):
        # As the last migration leaves it: the tables follow below.
        _version_table.create(connection)
        connection.execute(insert(_version_table).values(version_num=_newest_version()))
    elif not _is_current(connection):
        _migrate(connection)
    # Tables may have been dropped since the last migration, for example to free space.
    metadata.create_all(connection)


def _is_current(connection: Connection) -> bool:
    """Compare versions without Alembic, which takes 14 MiB and a third of a second."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return False
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalars().all()  # noqa: S608 - a constant
    return list(found) == [_newest_version()]


def _is_empty(connection: Connection) -> bool:
    database = inspect(connection)
    return not any(database.has_table(name) for name in (VERSION_TABLE, *metadata.tables))


def _newest_version() -> str:
    return max(path.name[:4] for path in (_MIGRATIONS / "versions").glob("[0-9]*.py"))


def _migrate(connection: Connection) -> None:
    from alembic import command

    config, found, newest = _read_versions(connection)
    if found is None and (columns := _read_columns(connection)):
        found = _infer_version(config, columns)
        log.warning(
            "store.version_recovered", version=found, reason="the tables exist, but not their version"
        )
        command.stamp(config, found)
    if found != newest:
        command.upgrade(config, "head")


def _read_versions(connection: Connection) -> tuple[Config, str | None, str]:
    """Return the Alembic configuration, the version of the database, if any, and the newest known version."""
    # Imported here, because a store whose schema is current is opened without Alembic.
    from alembic.runtime.migration import MigrationContext

    config = _configure(connection)
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    found, known = context.get_current_revision(), _list_versions(config)
    if found and found not in known:
        raise NewerSchemaError(
            f"{SETTING}: the store's schema is version {found}, this Trimtab knows versions up to {known[0]};"
            " upgrade Trimtab or give it another store"
        )
    return config, found, known[0]


def _configure(connection: Connection) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _list_versions(config: Config) -> list[str]:
    """Return all known versions, newest first."""
    from alembic.script import ScriptDirectory

    return [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]


def _read_columns(connection: Connection) -> dict[str, set[str]]:
    """Return the columns of the tables that exist."""
    database = inspect(connection)
    return {
        table: {column["name"] for column in database.get_columns(table)}
        for table in metadata.tables
        if database.has_table(table)
    }


def _infer_version(config: Config, columns: dict[str, set[str]]) -> str:
    """Return the newest version with these columns: somebody deleted the row that names it, such as by a partial
    restore.

    Starting again at the first migration would fail at the first table that exists, at each start.
    """
    from alembic import command

    for version in _list_versions(config):
        # In memory, and in a database of its own for each version: there are few, and they take milliseconds.
        with create_engine("sqlite://").begin() as scratch:
            command.upgrade(_configure(scratch), version)
            expected = _read_columns(scratch)
        if all(expected.get(table) == names for table, names in columns.items()):
            return version
    raise StoreError(
        f"{SETTING}: the store has tables, but neither a version in {VERSION_TABLE} nor the columns of a known version;"
        " restore it from a backup or name another"
    )
