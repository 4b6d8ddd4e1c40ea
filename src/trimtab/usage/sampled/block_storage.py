"""Storage of packed hours: in the store, where they survive a restart, or in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from trimtab.store import Store
from trimtab.store.errors import DamagedStateError
from trimtab.store.states import StateKey
from trimtab.usage.sampled.hour_block import HOUR_SECONDS, HourBlock

DEFAULT_CLUSTER = "default"
"""The cluster name of the first version, and the name if no cluster can be asked for its uid."""


class BlockStorage(Protocol):
    async def list_hours(self) -> list[int]: ...
    async def put(self, hour: HourBlock) -> None: ...
    async def get(self, number: int) -> HourBlock | None:
        """Return an hour, or None if it is missing or damaged; the other hours remain usable."""

    async def delete(self, number: int) -> None: ...


class MemoryBlockStorage:
    """Keeps packed hours in memory: a few megabytes per day and thousand containers."""

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
    """Keeps each hour as a state in the store, rewritten while the hour lasts."""

    def __init__(
        self, store: Store, *, fetch_cluster_name: Callable[[], Awaitable[str]], source: str
    ) -> None:
        """Use the store; `fetch_cluster_name` is called once, at the first read or write."""
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
        """Migrate hours that the first version stored without a cluster name, unless others share the store.

        If another cluster does, the owner of those samples is unknown and they stay as they are.
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
