"""Prune the store periodically, so that it does not fill its disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Never

import structlog

from trimtab.store import Retention, Store, StoreError

log = structlog.get_logger(__name__)

INTERVAL = 6 * 3600.0
"""The seconds between two prunes; if the store is unavailable, the next one is soon enough."""


class RetentionTask:
    """Prunes one store; `run` it as a task while leading."""

    def __init__(self, store: Store, *, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now

    async def run(self) -> Never:
        """Prune at every interval until cancelled."""
        while True:
            await self.prune()
            await asyncio.sleep(INTERVAL)

    async def prune(self) -> None:
        """Delete what the default retention no longer keeps."""
        try:
            await self._store.prune(Retention(), now=self._now())
        except StoreError as error:
            log.warning("store.prune_failed", error=str(error))
