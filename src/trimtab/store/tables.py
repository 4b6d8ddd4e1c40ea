"""The schema: one table per kind of record, the same on both databases.

Maps and lists are stored as JSON text: the store never interprets them, and text keeps the given bytes. Every table
has an `id`, which orders rows of equal time by insertion, a `timestamp` in seconds, by which it is pruned, and the
`cluster` of the row, since several clusters may share a store. The prefix of the table names lets other programs use
the same PostgreSQL database.

A change here needs a migration in `migrations/versions`; a test compares the two.
"""

import math
import re
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)

from trimtab.store.errors import DamagedError, RecordError

_UNSTORABLE_CHARACTER = re.compile("[\0\ud800-\udfff]")
"""The characters that cannot be stored: PostgreSQL has no NUL, and no database has surrogates, as which Python
decodes invalid bytes."""


class JsonText(TypeDecorator[Any]):
    """A JSON value as text; NaN becomes null, which means unknown."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002, the base's signature
        return None if value is None else msgspec.json.encode(value).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002
        try:
            return None if value is None else msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise DamagedError(f"a row of the store is not valid JSON: {error}") from error


class SanitizedText(TypeDecorator[str]):
    """Text from outside; characters that a database cannot store become the replacement character."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return _UNSTORABLE_CHARACTER.sub("\ufffd", value) if value else value


class UnixTime(TypeDecorator[float]):
    """A finite number of seconds since 1970."""

    impl = Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:  # noqa: ARG002
        if value is not None and not math.isfinite(value):
            raise RecordError(f"timestamp: {value} is not a finite number of seconds")
        return value


metadata = MetaData()


def _id() -> Column[int]:
    # Only INTEGER is auto-incremented by SQLite.
    return Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True)


states = Table(
    "trimtab_states",
    metadata,
    _id(),
    Column("cluster", SanitizedText, nullable=False),
    Column("strategy", SanitizedText, nullable=False),
    Column("shard", SanitizedText, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("timestamp", UnixTime, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
    UniqueConstraint("cluster", "strategy", "shard", name="trimtab_states_key"),
)

effects = Table(
    "trimtab_effects",
    metadata,
    _id(),
    Column("cluster", SanitizedText, nullable=False, server_default=""),
    Column("name", SanitizedText, nullable=False),
    Column("group", SanitizedText, nullable=False),
    Column("profile_name", SanitizedText, nullable=False),
    Column("data", JsonText, nullable=False),
    Column("static", Boolean, nullable=False),
    Column("timestamp", UnixTime, nullable=False),
    Index("trimtab_effects_by_key", "cluster", "name", "group", "profile_name", "timestamp"),
    Index("trimtab_effects_by_time", "timestamp", "id"),
)

events = Table(
    "trimtab_events",
    metadata,
    _id(),
    Column("cluster", SanitizedText, nullable=False, server_default=""),
    Column("name", SanitizedText, nullable=False),
    Column("timestamp", UnixTime, nullable=False),
    Column("current_objectives", JsonText, nullable=False),
    Column("desired_objectives", JsonText, nullable=False),
    Column("resources", JsonText, nullable=False),
    Column("annotations", JsonText, nullable=False),
    Column("pods", JsonText, nullable=False),
    Column("data", JsonText, nullable=False),
    Column("plan", JsonText),
    Index("trimtab_events_by_name", "cluster", "name", "timestamp", "id"),
    Index("trimtab_events_by_time", "timestamp", "id"),
)

history = Table(
    "trimtab_history",
    metadata,
    _id(),
    Column("timestamp", UnixTime, nullable=False),
    Column("cluster", SanitizedText, nullable=False),
    Column("namespace", SanitizedText, nullable=False),
    Column("kind", SanitizedText, nullable=False),
    Column("name", SanitizedText, nullable=False),
    Column("container", SanitizedText, nullable=False),
    Column("what", SanitizedText, nullable=False),
    Column("before", JsonText),
    Column("after", JsonText),
    Column("who", SanitizedText, nullable=False),
    Column("why", SanitizedText, nullable=False),
    Column("event_key", SanitizedText),
    Column("transition", SanitizedText, nullable=False, server_default=""),
    Index("trimtab_history_by_workload", "cluster", "namespace", "kind", "name", "timestamp", "id"),
    Index("trimtab_history_by_time", "timestamp", "id"),
    # Only of the few entries that have a key, so that all others need no space in it.
    Index(
        "trimtab_history_by_event",
        "cluster",
        "event_key",
        unique=True,
        sqlite_where=text("event_key IS NOT NULL"),
        postgresql_where=text("event_key IS NOT NULL"),
    ),
)
