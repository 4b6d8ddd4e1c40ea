"""A queue of records for the store, so that reporters do not wait until records are written.

A store may be unavailable, or blocked for minutes by a stalled disk or a failover. Tasks that must continue
meanwhile, such as a reconcile, queue their records here; if there are too many, the newest are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Never, Protocol, TypeVar

import structlog

from trimtab.store.errors import RecordError, StoreError

log = structlog.get_logger(__name__)

Record = TypeVar("Record")
Record_contra = TypeVar("Record_contra", contravariant=True)

RETRY_INTERVAL = 30.0
"""The seconds until an unavailable store is tried again."""


class Repository(Protocol[Record_contra]):
    """A repository that records can be appended to."""

    async def append(self, records: Sequence[Record_contra]) -> None: ...


class WriteQueue(Generic[Record]):
    """Records that wait to be appended; `run` it as a task."""

    def __init__(
        self,
        what: str,
        repository: Repository[Record],
        *,
        max_waiting: int,
        on_written: Callable[[Sequence[Record]], None] | None = None,
    ) -> None:
        """Create a queue; `what` names the records in the log, and beyond `max_waiting` the oldest are dropped.

        `on_written` is called with records once the store has them.
        """
        self._what = what
        self._repository = repository
        self._max_waiting = max_waiting
        self._on_written = on_written
        self._records: list[Record] = []
        self._waiting = asyncio.Event()
        self._writing = asyncio.Lock()
        self.last_error = ""
        """The reason why the last write failed; empty after a success."""

    def put(self, records: Iterable[Record]) -> None:
        before = len(self._records)
        self._records.extend(records)
        # Nearly every reconcile has nothing to record, and thousands of records may wait.
        if len(self._records) > before:
            del self._records[: -self._max_waiting]
            self._waiting.set()

    async def run(self) -> Never:
        """Write waiting records until cancelled."""
        while True:
            await self._waiting.wait()
            if not await self.flush():
                await asyncio.sleep(RETRY_INTERVAL)

    async def flush(self) -> bool:
        """Write all waiting records at once; return False if the store is unavailable, and the records go on
        waiting.
        """
        async with self._writing:
            records, self._records = self._records, []
            self._waiting.clear()
            if not records:
                return not self.last_error
            try:
                await self._repository.append(records)
            except RecordError as error:  # the store will never accept these records
                log.warning("store.write_rejected", records=self._what, count=len(records), error=str(error))
            except StoreError as error:
                if not self.last_error:
                    log.warning(
                        "store.unavailable", records=self._what, pending=len(records), error=str(error)
                    )
                self.last_error = str(error)
                self._records = [*records, *self._records][-self._max_waiting :]
                self._waiting.set()
                return False
            else:
                if self._on_written:
                    self._on_written(records)
            self.last_error = ""
            return True
