"""Records on their way to the store: nobody who reports something waits until it is written.

A store may be away, or frozen for minutes by a stalled disk or a failover. What has to go on meanwhile, such as a
reconcile, queues its records here; the newest are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Generic, Never, Protocol, TypeVar

import structlog

from trimtab.store.errors import RecordError, StoreError

log = structlog.get_logger(__name__)

Record = TypeVar("Record")
Record_contra = TypeVar("Record_contra", contravariant=True)

RETRY_INTERVAL = 30.0
"""Seconds after which a store that was away is tried again."""


class Repository(Protocol[Record_contra]):
    """What takes records."""

    async def append(self, records: Sequence[Record_contra]) -> None: ...


class WriteQueue(Generic[Record]):
    """Records that wait to be appended; `run` it as a task."""

    def __init__(self, what: str, repository: Repository[Record], *, max_waiting: int) -> None:
        """`what` names the records in the log; of more than `most` that wait, the oldest are dropped."""
        self._what = what
        self._repository = repository
        self._max_waiting = max_waiting
        self._records: list[Record] = []
        self._waiting = asyncio.Event()
        self._writing = asyncio.Lock()
        self.last_error = ""
        """Why the store did not take the last ones; empty when it did."""

    def put(self, records: Iterable[Record]) -> None:
        self._records = [*self._records, *records][-self._max_waiting :]
        if self._records:
            self._waiting.set()

    async def run(self) -> Never:
        """Write what waits, until cancelled."""
        while True:
            await self._waiting.wait()
            if not await self.flush():
                await asyncio.sleep(RETRY_INTERVAL)

    async def flush(self) -> bool:
        """Write all that waits now, in one go; False where the store is away, and it goes on to wait."""
        async with self._writing:
            records, self._records = self._records, []
            self._waiting.clear()
            if not records:
                return not self.last_error
            try:
                await self._repository.append(records)
            except RecordError as error:  # the store will never take them
                log.warning("store.not_kept", what=self._what, records=len(records), error=str(error))
            except StoreError as error:
                if not self.last_error:
                    log.warning("store.away", what=self._what, waiting=len(records), error=str(error))
                self.last_error = str(error)
                self._records = [*records, *self._records][-self._max_waiting :]
                self._waiting.set()
                return False
            self.last_error = ""
            return True
