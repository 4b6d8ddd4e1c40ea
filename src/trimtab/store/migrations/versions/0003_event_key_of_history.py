"""History entries may have a key, so that an event which several replicas see is stored once.

Entries of before have none. A table that somebody has dropped is passed over: it is created with the present schema once
all migrations are done.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    if not sa.inspect(op.get_bind()).has_table("trimtab_history"):
        return
    op.add_column("trimtab_history", sa.Column("event_key", sa.Text))
    has_key = sa.text("event_key IS NOT NULL")
    op.create_index(
        "trimtab_history_by_event",
        "trimtab_history",
        ["cluster", "event_key"],
        unique=True,
        sqlite_where=has_key,
        postgresql_where=has_key,
    )
