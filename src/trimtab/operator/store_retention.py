"""Lets the store forget, every now and then, what is older or more than is to be kept: else it would fill its disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Never

import structlog

from trimtab.store import Retention, Store, StoreError

log = structlog.get_logger(__name__)

INTERVAL = 6 * 3600.0
"""Seconds between two times; a store that is away then is left until the next."""


class RetentionTask:
    """One store's; `run` it as a task while leading."""

    def __init__(self, store: Store, *, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now

    async def run(self) -> Never:
        while True:
            await self.prune()
            await asyncio.sleep(INTERVAL)

    async def prune(self) -> None:
        try:
            await self._store.prune(Retention(), now=self._now())
        except StoreError as error:
            log.warning("store.not_tidied", error=str(error))
