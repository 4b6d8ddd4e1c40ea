"""The entry point of Alembic: migrate on the connection, and inside the transaction, of the opener."""

from alembic import context

from trimtab.store.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    transactional_ddl=True,  # SQLite has it too, once the driver leaves transactions to us
)
context.run_migrations()
