"""Upgrade the schema of an open database to the version of this code, or reject it.

The migrations are part of the package and run at every opening, inside the opener's transaction: a partial migration
is never visible, and of two replicas that open at once the second finds the migration done.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from trimtab.store.errors import SETTING, AddressError, NewerSchemaError, StoreError
from trimtab.store.tables import metadata

if TYPE_CHECKING:
    from alembic.config import Config

VERSION_TABLE = "trimtab_schema"
_MIGRATIONS = Path(__file__).parent / "migrations"


async def upgrade_schema(connection: AsyncConnection, *, lock: str | None) -> None:
    """Migrate within the connection's transaction; `lock` is the statement that excludes other processes."""
    if lock:
        await connection.execute(text(lock))
    await connection.run_sync(_upgrade)


async def check_schema(connection: AsyncConnection) -> None:
    """Check that the schema can be read without a migration; nothing is written."""
    await connection.run_sync(_check)


def _check(connection: Connection) -> None:
    _, found, newest = _read_versions(connection)
    if found is None:
        raise AddressError(f"{SETTING}: the database contains no Trimtab store; name another")
    if found != newest:
        raise StoreError(
            f"{SETTING}: the store's schema is version {found}, and the operator has yet to bring it to {newest}; "
            "use the Trimtab that writes it"
        )


def _upgrade(connection: Connection) -> None:
    from alembic import command

    config, found, newest = _read_versions(connection)
    if found != newest:
        command.upgrade(config, "head")
    metadata.create_all(
        connection
    )  # tables that were dropped since the last migration, for example to free space


def _read_versions(connection: Connection) -> tuple[Config, str | None, str]:
    """Return the Alembic configuration, the version of the database, if any, and the newest known version."""
    # Alembic takes a third of a second to import, so import it only when a store is opened.
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection

    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    found = context.get_current_revision()
    known = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    if found and found not in known:
        raise NewerSchemaError(
            f"{SETTING}: the store's schema is version {found}, this Trimtab knows versions up to {known[0]};"
            " upgrade Trimtab or give it another store"
        )
    return config, found, known[0]
