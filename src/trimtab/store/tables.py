"""The schema: one table a noun, the same on both databases.

Maps and lists are kept as JSON text: the store never looks into them, and text keeps the bytes that it was
given. Every table has an `id`, which breaks ties of time by the order of writing, a `timestamp` in seconds,
by which it is pruned, and the `cluster` that it is of, since several may share a store. The prefix lets a PostgreSQL database be shared with other programs.

A change here needs a migration beside it in `migrations/versions`; a test compares the two.
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
)

from trimtab.store.errors import DamagedError, RecordError

_NO_CHARACTER = re.compile("[\0\ud800-\udfff]")
"""PostgreSQL holds no NUL, and no database the half of a surrogate pair, as which Python reads bytes that are no text."""


class Json(TypeDecorator[Any]):
    """What JSON can say, as text. NaN becomes null: unknown."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002, the base's signature
        return None if value is None else msgspec.json.encode(value).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002
        try:
            return None if value is None else msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise DamagedError(f"a row of the store is no JSON any more: {error}") from error


class Words(TypeDecorator[str]):
    """Text from outside. What is no character to a database (NUL, half a pair) becomes the replacement character."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return _NO_CHARACTER.sub("\ufffd", value) if value else value


class Seconds(TypeDecorator[float]):
    """A moment that can be compared with others."""

    impl = Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:  # noqa: ARG002
        if value is not None and not math.isfinite(value):
            raise RecordError(f"timestamp: {value} is no moment; give seconds")
        return value


metadata = MetaData()


def _id() -> Column[int]:
    # Only INTEGER counts up by itself on SQLite.
    return Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True)


states = Table(
    "trimtab_states",
    metadata,
    _id(),
    Column("cluster", Words, nullable=False),
    Column("strategy", Words, nullable=False),
    Column("shard", Words, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("timestamp", Seconds, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
    UniqueConstraint("cluster", "strategy", "shard", name="trimtab_states_key"),
)

effects = Table(
    "trimtab_effects",
    metadata,
    _id(),
    Column("cluster", Words, nullable=False, server_default=""),
    Column("name", Words, nullable=False),
    Column("group", Words, nullable=False),
    Column("profile_name", Words, nullable=False),
    Column("data", Json, nullable=False),
    Column("static", Boolean, nullable=False),
    Column("timestamp", Seconds, nullable=False),
    Index("trimtab_effects_by_key", "cluster", "name", "group", "profile_name", "timestamp"),
    Index("trimtab_effects_by_time", "timestamp", "id"),
)

events = Table(
    "trimtab_events",
    metadata,
    _id(),
    Column("cluster", Words, nullable=False, server_default=""),
    Column("name", Words, nullable=False),
    Column("timestamp", Seconds, nullable=False),
    Column("current_objectives", Json, nullable=False),
    Column("desired_objectives", Json, nullable=False),
    Column("resources", Json, nullable=False),
    Column("annotations", Json, nullable=False),
    Column("pods", Json, nullable=False),
    Column("data", Json, nullable=False),
    Column("plan", Json),
    Index("trimtab_events_by_name", "cluster", "name", "timestamp", "id"),
    Index("trimtab_events_by_time", "timestamp", "id"),
)

history = Table(
    "trimtab_history",
    metadata,
    _id(),
    Column("timestamp", Seconds, nullable=False),
    Column("cluster", Words, nullable=False),
    Column("namespace", Words, nullable=False),
    Column("kind", Words, nullable=False),
    Column("name", Words, nullable=False),
    Column("container", Words, nullable=False),
    Column("what", Words, nullable=False),
    Column("before", Json),
    Column("after", Json),
    Column("who", Words, nullable=False),
    Column("why", Words, nullable=False),
    Index("trimtab_history_by_workload", "cluster", "namespace", "kind", "name", "timestamp", "id"),
    Index("trimtab_history_by_time", "timestamp", "id"),
)
