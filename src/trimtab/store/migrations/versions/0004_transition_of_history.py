"""Entries of the history name the transition of the change that they are about.

Older entries name none. A table that somebody has dropped is passed over: it is created with the present schema once all
migrations are done.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    if sa.inspect(op.get_bind()).has_table("trimtab_history"):
        op.add_column("trimtab_history", sa.Column("transition", sa.Text, nullable=False, server_default=""))
