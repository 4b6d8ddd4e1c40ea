"""Where packed hours lie: in the store, from which they come back after a restart, or in memory where there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from trimtab.store import Store
from trimtab.store.errors import DamagedStateError
from trimtab.store.states import StateKey
from trimtab.usage.sampled.hour_block import HOUR_SECONDS, HourBlock

DEFAULT_CLUSTER = "default"
"""What every cluster was called where nobody gave it a name, and is where there is no cluster to ask for its uid."""


class BlockStorage(Protocol):
    async def list_hours(self) -> list[int]: ...
    async def put(self, hour: HourBlock) -> None: ...
    async def get(self, number: int) -> HourBlock | None:
        """None where there is none that can be read: a damaged hour is lost, and the others are not."""

    async def delete(self, number: int) -> None: ...


class MemoryBlockStorage:
    """Packed all the same: a day is then a few megabytes for a thousand containers."""

    def __init__(self) -> None:
        self._hours: dict[int, bytes] = {}

    async def list_hours(self) -> list[int]:
        return sorted(self._hours)

    async def put(self, hour: HourBlock) -> None:
        self._hours[hour.number] = await asyncio.to_thread(hour.pack)

    async def get(self, number: int) -> HourBlock | None:
        data = self._hours.get(number)
        return None if data is None else await asyncio.to_thread(HourBlock.unpack, number, data)

    async def delete(self, number: int) -> None:
        self._hours.pop(number, None)


class StoreBlockStorage:
    """A state an hour: written over while it lasts, then left alone."""

    def __init__(
        self, store: Store, *, fetch_cluster_name: Callable[[], Awaitable[str]], source: str
    ) -> None:
        """`cluster` names the cluster that the samples are of; it is asked once, when a sample is kept or read."""
        self._states = store.states
        self._fetch_cluster_name = fetch_cluster_name
        self._strategy_key = f"usage/{source}"
        self._cluster_name: str | None = None
        self._name_lock = asyncio.Lock()

    async def list_hours(self) -> list[int]:
        return await self._list_cluster_hours(await self._get_cluster_name())

    async def put(self, hour: HourBlock) -> None:
        packed = await asyncio.to_thread(hour.pack)  # a second for a hundred thousand containers
        key = await self._build_key(hour.number)
        await self._states.save(key, packed, timestamp=(hour.number + 1) * HOUR_SECONDS)

    async def get(self, number: int) -> HourBlock | None:
        try:
            state = await self._states.load(await self._build_key(number))
            return None if state is None else await asyncio.to_thread(HourBlock.unpack, number, state.data)
        except (DamagedStateError, ValueError):
            return None

    async def delete(self, number: int) -> None:
        await self._states.forget(await self._build_key(number))

    async def _build_key(self, number: int) -> StateKey:
        return StateKey(await self._get_cluster_name(), self._strategy_key, str(number))

    async def _get_cluster_name(self) -> str:
        async with self._name_lock:
            if self._cluster_name is None:
                name = await self._fetch_cluster_name()
                await self._migrate_unnamed(name)
                self._cluster_name = name
            return self._cluster_name

    async def _list_cluster_hours(self, cluster: str) -> list[int]:
        mine = (cluster, self._strategy_key)
        notes = await self._states.list_summaries()
        return sorted(int(note.shard) for note in notes if (note.cluster, note.strategy) == mine)

    async def _migrate_unnamed(self, name: str) -> None:
        """Go on from what a release kept that called every cluster the same, if no other cluster uses the store.

        Where one does, nobody can tell whose samples those are: they may be of both, so they are left alone.
        """
        if name == DEFAULT_CLUSTER:
            return
        others = {note.cluster for note in await self._states.list_summaries()} - {name, DEFAULT_CLUSTER}
        if others:
            return
        known = set(await self._list_cluster_hours(name))
        for number in await self._list_cluster_hours(DEFAULT_CLUSTER):
            old = StateKey(DEFAULT_CLUSTER, self._strategy_key, str(number))
            try:
                state = await self._states.load(old) if number not in known else None
            except DamagedStateError:
                state = None
            if state is not None:
                new = StateKey(name, self._strategy_key, str(number))
                await self._states.save(new, state.data, timestamp=state.timestamp)
            await self._states.forget(old)
