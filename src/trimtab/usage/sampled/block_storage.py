"""Where packed hours lie: in the store, from which they come back after a restart, or in memory where there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from trimtab.store import Store
from trimtab.store.errors import DamagedStateError
from trimtab.store.states import StateKey
from trimtab.usage.sampled.hour_block import LENGTH, Hour

UNNAMED = "default"
"""What every cluster was called where nobody gave it a name, and is where there is no cluster to ask for its uid."""


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

    def __init__(self, store: Store, *, cluster: Callable[[], Awaitable[str]], source: str) -> None:
        """`cluster` names the cluster that the samples are of; it is asked once, when a sample is kept or read."""
        self._states = store.states
        self._cluster = cluster
        self._whose = f"usage/{source}"
        self._name: str | None = None
        self._naming = asyncio.Lock()

    async def numbers(self) -> list[int]:
        return await self._numbers_of(await self._named())

    async def put(self, hour: Hour) -> None:
        packed = await asyncio.to_thread(hour.pack)  # a second for a hundred thousand containers
        key = await self._key(hour.number)
        await self._states.save(key, packed, timestamp=(hour.number + 1) * LENGTH)

    async def get(self, number: int) -> Hour | None:
        try:
            state = await self._states.load(await self._key(number))
            return None if state is None else await asyncio.to_thread(Hour.unpack, number, state.data)
        except (DamagedStateError, ValueError):
            return None

    async def forget(self, number: int) -> None:
        await self._states.forget(await self._key(number))

    async def _key(self, number: int) -> StateKey:
        return StateKey(await self._named(), self._whose, str(number))

    async def _named(self) -> str:
        async with self._naming:
            if self._name is None:
                name = await self._cluster()
                await self._take_over_unnamed(name)
                self._name = name
            return self._name

    async def _numbers_of(self, cluster: str) -> list[int]:
        mine = (cluster, self._whose)
        notes = await self._states.notes()
        return sorted(int(note.shard) for note in notes if (note.cluster, note.strategy) == mine)

    async def _take_over_unnamed(self, name: str) -> None:
        """Go on from what a release kept that called every cluster the same, if no other cluster uses the store.

        Where one does, nobody can tell whose samples those are: they may be of both, so they are left alone.
        """
        if name == UNNAMED:
            return
        others = {note.cluster for note in await self._states.notes()} - {name, UNNAMED}
        if others:
            return
        known = set(await self._numbers_of(name))
        for number in await self._numbers_of(UNNAMED):
            old = StateKey(UNNAMED, self._whose, str(number))
            try:
                state = await self._states.load(old) if number not in known else None
            except DamagedStateError:
                state = None
            if state is not None:
                new = StateKey(name, self._whose, str(number))
                await self._states.save(new, state.data, timestamp=state.timestamp)
            await self._states.forget(old)
