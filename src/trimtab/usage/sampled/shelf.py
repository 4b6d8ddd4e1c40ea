"""Where packed hours lie: in the store, from which they come back after a restart, or in memory where there is none."""

from __future__ import annotations

import asyncio
from typing import Protocol

from trimtab.store import Store
from trimtab.store.errors import DamagedStateError
from trimtab.store.states import StateKey
from trimtab.usage.sampled.hour import LENGTH, Hour


class Shelf(Protocol):
    async def numbers(self) -> list[int]: ...
    async def put(self, hour: Hour) -> None: ...
    async def get(self, number: int) -> Hour | None:
        """None where there is none that can be read: a damaged hour is lost, and the others are not."""

    async def forget(self, number: int) -> None: ...


class InMemory:
    """Packed all the same: a day is then a few megabytes for a thousand containers."""

    def __init__(self) -> None:
        self._hours: dict[int, bytes] = {}

    async def numbers(self) -> list[int]:
        return sorted(self._hours)

    async def put(self, hour: Hour) -> None:
        self._hours[hour.number] = await asyncio.to_thread(hour.pack)

    async def get(self, number: int) -> Hour | None:
        data = self._hours.get(number)
        return None if data is None else await asyncio.to_thread(Hour.unpack, number, data)

    async def forget(self, number: int) -> None:
        self._hours.pop(number, None)


class InStore:
    """A state an hour: written over while it lasts, then left alone."""

    def __init__(self, store: Store, *, cluster: str, source: str) -> None:
        self._states = store.states
        self._cluster = cluster
        self._whose = f"usage/{source}"

    async def numbers(self) -> list[int]:
        mine = (self._cluster, self._whose)
        notes = await self._states.notes()
        return sorted(int(note.shard) for note in notes if (note.cluster, note.strategy) == mine)

    async def put(self, hour: Hour) -> None:
        packed = await asyncio.to_thread(hour.pack)  # a second for a hundred thousand containers
        await self._states.save(self._key(hour.number), packed, timestamp=(hour.number + 1) * LENGTH)

    async def get(self, number: int) -> Hour | None:
        try:
            state = await self._states.load(self._key(number))
            return None if state is None else await asyncio.to_thread(Hour.unpack, number, state.data)
        except (DamagedStateError, ValueError):
            return None

    async def forget(self, number: int) -> None:
        await self._states.forget(self._key(number))

    def _key(self, number: int) -> StateKey:
        return StateKey(self._cluster, self._whose, str(number))
