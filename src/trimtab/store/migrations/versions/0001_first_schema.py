"""The first schema: learned states, effects, planner events, history.

It repeats `tables` on purpose: a migration tells what was, and stays as it is when the tables change.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def _id() -> sa.Column[int]:
    return sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True)


def _text(*names: str, nullable: bool = False) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=nullable) for name in names]


def _timestamp() -> sa.Column[float]:
    return sa.Column("timestamp", sa.Double, nullable=False)


def upgrade() -> None:
    op.create_table(
        "trimtab_states",
        _id(),
        *_text("cluster", "strategy", "shard"),
        sa.Column("version", sa.BigInteger, nullable=False),
        _timestamp(),
        *_text("sha256"),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("cluster", "strategy", "shard", name="trimtab_states_key"),
    )
    op.create_table(
        "trimtab_effects",
        _id(),
        *_text("name", "group", "profile_name", "data"),
        sa.Column("static", sa.Boolean, nullable=False),
        _timestamp(),
    )
    op.create_table(
        "trimtab_events",
        _id(),
        *_text("name"),
        _timestamp(),
        *_text("current_objectives", "desired_objectives", "resources", "annotations", "pods", "data"),
        *_text("plan", nullable=True),
    )
    op.create_table(
        "trimtab_history",
        _id(),
        _timestamp(),
        *_text("cluster", "namespace", "kind", "name", "container", "what"),
        *_text("before", "after", nullable=True),
        *_text("who", "why"),
    )
    for name, table, columns in (
        ("trimtab_effects_by_key", "trimtab_effects", ["name", "group", "profile_name", "timestamp"]),
        ("trimtab_effects_by_time", "trimtab_effects", ["timestamp", "id"]),
        ("trimtab_events_by_name", "trimtab_events", ["name", "timestamp", "id"]),
        ("trimtab_events_by_time", "trimtab_events", ["timestamp", "id"]),
        (
            "trimtab_history_by_workload",
            "trimtab_history",
            ["cluster", "namespace", "kind", "name", "timestamp", "id"],
        ),
        ("trimtab_history_by_time", "trimtab_history", ["timestamp", "id"]),
    ):
        op.create_index(name, table, columns)
