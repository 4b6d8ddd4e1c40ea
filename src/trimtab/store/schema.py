"""Brings the schema of an open database to the version that this code knows, or refuses.

The migrations are shipped in the package and run at every opening, inside the opener's transaction: half a
migration is never seen, and of two replicas that open at once the second finds the work done.
"""

from pathlib import Path

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from trimtab.store.errors import SETTING, NewerSchemaError
from trimtab.store.tables import metadata

VERSION_TABLE = "trimtab_schema"
_MIGRATIONS = Path(__file__).parent / "migrations"


async def upgrade(connection: AsyncConnection, *, lock: str | None) -> None:
    """Migrate within the connection's transaction; `lock` is the statement that makes us the only one."""
    if lock:
        await connection.execute(text(lock))
    await connection.run_sync(_upgrade)


def _upgrade(connection: Connection) -> None:
    # Alembic takes a third of a second to import; only who opens a store pays for it.
    from alembic import command
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
    if found != known[0]:
        command.upgrade(config, "head")
    metadata.create_all(connection)  # whichever table somebody has dropped since: to make room, say
