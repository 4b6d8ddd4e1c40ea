"""Limit concurrent queries, retry with back-off, and split queries that are too large.

A failed shard is split in half and its parts inherit the failure count, so that a server that is down is not
queried forever. A permanent failure ends all queries; the second half therefore waits for the first, and a
hopeless read ends after a few queries.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from trimtab.aio import task_group
from trimtab.timing import Backoff
from trimtab.usage.errors import (
    QueryTooLarge,
    SourceTimeout,
    SourceUnavailable,
    UsageError,
    UsageResponseError,
)
from trimtab.usage.prometheus.sharding import QueryShard

T = TypeVar("T")


PartQuery = Callable[[QueryShard], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class QueryScheduler:
    """The limits on concurrent queries and retries."""

    slots: asyncio.Semaphore
    """The slots that all users of this server share."""
    retries: int
    backoff: Backoff
    rng: random.Random

    async def run_query(
        self, query: Callable[[], Awaitable[T]], *, no_retry_on: tuple[type[UsageError], ...] = ()
    ) -> T:
        """Run one query that cannot be split; do not retry after an error in `no_retry_on`."""
        failures = 0
        while True:
            try:
                return await query()
            except (SourceUnavailable, UsageResponseError) as error:
                failures += 1
                if failures > self.retries or isinstance(error, no_retry_on):
                    raise
                await asyncio.sleep(self.retry_delay(error, failures))

    async def run_all(self, parts: Iterable[QueryShard], query: PartQuery) -> None:
        """Run all shards, whole or in smaller parts."""
        async with task_group() as group:
            for part in parts:
                group.create_task(self._run_part(part, query, group))

    async def _run_part(self, part: QueryShard, query: PartQuery, group: asyncio.TaskGroup) -> None:
        # Not a nested function: one that refers to itself would keep all responses alive until garbage collection.
        try:
            async with self.slots:
                await query(part)
        except (QueryTooLarge, SourceUnavailable, UsageResponseError) as error:
            rest = self._remaining_parts(part, error)
            if not rest:
                raise
            delay = self.retry_delay(error, rest[0].failures) if rest[0].failures else 0.0
        else:
            return
        await asyncio.sleep(delay)
        first, *others = rest
        await self._run_part(first, query, group)
        for other in others:
            group.create_task(self._run_part(other, query, group))

    def _remaining_parts(self, part: QueryShard, error: UsageError) -> tuple[QueryShard, ...]:
        """Return the shards that remain after a failure: halves, the same once more, or none if hopeless."""
        if isinstance(error, QueryTooLarge):
            return part.split()
        if part.failures >= self.retries:
            return ()
        again = replace(part, failures=part.failures + 1)
        # Some servers report only "unavailable" for a query that is too large.
        smaller = isinstance(error, SourceTimeout) or again.failures > 1
        return (again.split() if smaller else ()) or (again,)

    def retry_delay(self, error: UsageError, failures: int) -> float:
        requested = error.retry_after if isinstance(error, SourceUnavailable) else 0.0
        return max(requested, self.backoff.delay(failures, rng=self.rng))
