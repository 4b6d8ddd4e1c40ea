"""Planner events: the objectives and pods of an intent, the targets, and the plan.

Effects are fitted from them. The fields are those of the Intent Driven Orchestration knowledge base. They are not
Kubernetes Events, which `kube.runtime` writes.
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
    """The measured values by objective; None is unknown, which does not count as met."""
    desired_objectives: dict[str, float | None]
    resources: dict[str, Any] = {}
    annotations: dict[str, Any] = {}
    pods: dict[str, Any] = {}
    data: dict[str, Any] = {}
    plan: list[dict[str, Any]] | None = None
    """The plan; None if nothing was planned."""
    cluster: str = ""
    """The cluster; empty if it is not known."""


class PlannerEventRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, records: Sequence[PlannerEvent]) -> None:
        """Insert all records, or none."""
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
        """Return the events of a cluster and a name within a period, both ends included, newest first.

        With a `spacing` of more than a minute, only the events of one minute per so many seconds are returned, as a
        sample of all.
        """
        conditions = build_conditions(events, since=since, until=until, cluster=cluster, name=name)
        if spacing > MINUTE:
            conditions = [*conditions, cast(events.c.timestamp, BigInteger) % int(spacing) < MINUTE]
        return await self._database.fetch_newest(PlannerEvent, events, *conditions, limit=limit)
