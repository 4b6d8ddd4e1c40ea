"""Planner events (the objectives and pods of an intent, the targets, and the plan), and models of effects.

Models of the effect of an action on an objective are given by users or fitted from planner events. A model is data,
never code: a stored model can be wrong, but not dangerous. The fields of both are those of the Intent Driven
Orchestration knowledge base. Planner events are not Kubernetes Events, which `kube.runtime` writes.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import BigInteger, ColumnElement, cast

from trimtab.store.database import Database, build_conditions
from trimtab.store.tables import effects, events

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


class Effect(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="effect"):
    name: str
    """The key of the intent or workload."""
    group: str
    """The action that has the effect: `scaling`, `vertical_scaling`, …"""
    profile_name: str = msgspec.field(name="profileName")
    """The KPI that is affected."""
    data: dict[str, Any]
    static: bool = False
    """The model was given by a person and never expires."""
    timestamp: float
    cluster: str = ""
    """The cluster; empty if the model applies to any, as one given by a person may."""


class EffectRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, records: Sequence[Effect]) -> None:
        """Insert all records, or none."""
        await self._database.append(effects, records)

    async def find(self, *, cluster: str, name: str, limit: int = 100) -> list[Effect]:
        """Return all models of one name for a cluster, or for any, newest first."""
        return await self._database.fetch_newest(
            Effect, effects, _match_cluster(cluster), effects.c.name == name, limit=limit
        )


def _match_cluster(cluster: str) -> ColumnElement[bool]:
    return effects.c.cluster.in_({cluster, ""})
