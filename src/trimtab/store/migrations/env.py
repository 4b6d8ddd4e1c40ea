"""Alembic's entry: migrates on the connection, and inside the transaction, of whoever opens the store."""

from alembic import context

from trimtab.store.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    transactional_ddl=True,  # SQLite has it too, once the driver leaves transactions to us
)
context.run_migrations()
