"""Effects and planner events say which cluster they are of, as states and history do.

Those of before are of the only cluster that the history knows, if it knows one; else they are of none in particular. A
table that somebody has dropped is passed over: it is created with the present schema once all migrations are done.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_INDEXES = {
    "trimtab_effects": ("trimtab_effects_by_key", ["cluster", "name", "group", "profile_name", "timestamp"]),
    "trimtab_events": ("trimtab_events_by_name", ["cluster", "name", "timestamp", "id"]),
}


def upgrade() -> None:
    database = sa.inspect(op.get_bind())
    has_history = database.has_table("trimtab_history")
    for table, (index, columns) in _INDEXES.items():
        if not database.has_table(table):
            continue
        op.add_column(table, sa.Column("cluster", sa.Text, nullable=False, server_default=""))
        if has_history:
            op.execute(
                f"UPDATE {table} SET cluster = (SELECT MIN(cluster) FROM trimtab_history)"  # noqa: S608 - our own names
                " WHERE (SELECT COUNT(DISTINCT cluster) FROM trimtab_history) = 1"
            )
        op.drop_index(index, table, if_exists=True)
        op.create_index(index, table, columns)
