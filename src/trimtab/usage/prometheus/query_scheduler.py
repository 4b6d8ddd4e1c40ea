"""How a server is asked many things without harm to it: few at a time, again later when it is busy, less when it is much.

What cannot be answered whole is cut in halves, and a failure is inherited by the parts it was cut into, so that
a server that is down is not asked for ever. One question that fails for good ends them all: so of two halves the second
waits for the first, and what is hopeless is found out by a few questions.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from trimtab.aio import task_group
from trimtab.kube.rest.retry import Backoff
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
    """How many at a time, and how often again."""

    slots: asyncio.Semaphore
    """Shared by all who ask this server."""
    retries: int
    backoff: Backoff
    rng: random.Random

    async def run_query(
        self, query: Callable[[], Awaitable[T]], *, no_retry_on: tuple[type[UsageError], ...] = ()
    ) -> T:
        """The answer to one question that cannot be made smaller; not asked again after a failure named in `unless`."""
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
        """Every part answered, whole or in smaller ones."""
        async with task_group() as group:
            for part in parts:
                group.create_task(self._run_part(part, query, group))

    async def _run_part(self, part: QueryShard, query: PartQuery, group: asyncio.TaskGroup) -> None:
        # Not a function inside `ask_all`: one that names itself is kept, and all that was answered with it, until the
        # collector comes by.
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
        """What is left to ask after a failure: smaller parts, or the same once more; nothing when it is hopeless."""
        if isinstance(error, QueryTooLarge):
            return part.split()
        if part.failures >= self.retries:
            return ()
        again = replace(part, failures=part.failures + 1)
        # Some servers say no more than "unavailable" of a query that is too much for them.
        smaller = isinstance(error, SourceTimeout) or again.failures > 1
        return (again.split() if smaller else ()) or (again,)

    def retry_delay(self, error: UsageError, failures: int) -> float:
        wished = error.retry_after if isinstance(error, SourceUnavailable) else 0.0
        return max(wished, self.backoff.delay(failures, rng=self.rng))
