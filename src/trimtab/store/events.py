"""Planner events: what an intent's objectives and pods were, what was wanted, and what was planned.

Effects are fitted from them. The fields are those of the Intent Driven Orchestration knowledge base. These are
not Kubernetes Events, which are kube's.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import BigInteger, cast

from trimtab.store.database import Database
from trimtab.store.row_mapping import build_conditions
from trimtab.store.tables import events

MINUTE = 60


class PlannerEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="event"):
    name: str
    """The key of the intent."""
    timestamp: float
    current_objectives: dict[str, float | None]
    """None is unknown, which is not met."""
    desired_objectives: dict[str, float | None]
    resources: dict[str, Any] = {}
    annotations: dict[str, Any] = {}
    pods: dict[str, Any] = {}
    data: dict[str, Any] = {}
    plan: list[dict[str, Any]] | None = None
    """None where nothing was planned."""
    cluster: str = ""
    """Empty where it is not known."""


class PlannerEventRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, records: Sequence[PlannerEvent]) -> None:
        """Keep all of them, or none."""
        await self._database.append(events, records)

    async def find(
        self,
        *,
        cluster: str | None = None,
        name: str | None = None,
        since: float | None = None,
        until: float | None = None,
        spacing: float = 0.0,
        limit: int = 1000,
    ) -> list[PlannerEvent]:
        """Return those of a cluster and a name within a time, both ends included, newest first.

        With a `spacing` of more than a minute, only those of one minute in so many seconds, so that few represent all.
        """
        conditions = build_conditions(events, since=since, until=until, cluster=cluster, name=name)
        if spacing > MINUTE:
            conditions = [*conditions, cast(events.c.timestamp, BigInteger) % int(spacing) < MINUTE]
        return await self._database.fetch_newest(PlannerEvent, events, *conditions, limit=limit)
