"""What a deed does to an objective: models that were given, or fitted from planner events.

The fields are those of the Intent Driven Orchestration knowledge base. A model is data, never code: what is read
back can be wrong, but not dangerous.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, or_

from trimtab.store.database import Database
from trimtab.store.tables import effects


class Effect(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="effect"):
    name: str
    """Whose: the key of an intent or a workload."""
    group: str
    """Of which deed: `scaling`, `vertical_scaling`, …"""
    profile_name: str = msgspec.field(name="profileName")
    """On which KPI."""
    data: dict[str, Any]
    static: bool = False
    """Given by a person: it never grows old."""
    timestamp: float
    cluster: str = ""
    """Empty where it holds for any, as what a person gave may."""


class EffectRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, records: Sequence[Effect]) -> None:
        """Keep all of them, or none."""
        await self._database.append(effects, records)

    async def find_newest(
        self, *, cluster: str, name: str, group: str, profile_name: str, now: float, look_back: float
    ) -> Effect | None:
        """The newest of a cluster, or of any, that is static or younger than the look-back, in seconds."""
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
        """All models of one name in a cluster, or in any, newest first."""
        return await self._database.fetch_newest(
            Effect, effects, _match_cluster(cluster), effects.c.name == name, limit=limit
        )


def _match_cluster(cluster: str) -> ColumnElement[bool]:
    return effects.c.cluster.in_({cluster, ""})
