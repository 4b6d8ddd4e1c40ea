"""Models of the effect of an action on an objective, given by users or fitted from planner events.

The fields are those of the Intent Driven Orchestration knowledge base. A model is data, never code: a stored model
can be wrong, but not dangerous.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, or_

from trimtab.store.database import Database
from trimtab.store.tables import effects


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

    async def find_newest(
        self, *, cluster: str, name: str, group: str, profile_name: str, now: float, look_back: float
    ) -> Effect | None:
        """Return the newest model for this cluster, or for any, that is static or younger than the look-back in
        seconds.
        """
        found = await self._database.fetch_newest(
            Effect,
            effects,
            _match_cluster(cluster),
            effects.c.name == name,
            effects.c.group == group,
            effects.c.profile_name == profile_name,
            or_(effects.c.static, effects.c.timestamp > now - look_back),
            limit=1,
        )
        return found[0] if found else None

    async def find(self, *, cluster: str, name: str, limit: int = 100) -> list[Effect]:
        """Return all models of one name for a cluster, or for any, newest first."""
        return await self._database.fetch_newest(
            Effect, effects, _match_cluster(cluster), effects.c.name == name, limit=limit
        )


def _match_cluster(cluster: str) -> ColumnElement[bool]:
    return effects.c.cluster.in_({cluster, ""})
