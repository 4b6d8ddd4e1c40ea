"""Limit concurrent queries, retry with back-off, and split queries that are too large.

A failed part is split in half and its halves inherit the failure count, so that a server that is down is not
queried forever. Parts of one read end together: a permanent failure of one ends all, and the second half waits for
the first, so that a hopeless read ends after a few queries. Parts that are unrelated, such as batches of KPIs, are
isolated instead: a part that fails even alone is reported, and all others go on.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from trimtab.aio import task_group
from trimtab.timing import Backoff
from trimtab.usage.errors import (
    QueryTooLarge,
    SourceRefused,
    SourceTimeout,
    SourceUnavailable,
    UsageError,
    UsageResponseError,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPart(ABC):
    """A part of a query."""

    failures: int = 0
    """The number of failures of this part and of those it was split from."""

    @abstractmethod
    def split(self) -> tuple[Self, ...]:
        """Return two halves; empty if it cannot be split."""


P = TypeVar("P", bound=QueryPart)
PartQuery = Callable[[P], Awaitable[None]]
ReportFailure = Callable[[P, UsageError], None]


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

    async def run_all(
        self, parts: Iterable[P], query: PartQuery[P], *, report: ReportFailure[P] | None = None
    ) -> None:
        """Run all parts, whole or in halves. With `report` they are isolated: it receives those that fail alone."""
        async with task_group() as group:
            for part in parts:
                group.create_task(self._run_part(part, query, report, group))

    async def _run_part(
        self, part: P, query: PartQuery[P], report: ReportFailure[P] | None, group: asyncio.TaskGroup
    ) -> None:
        # Not a nested function: one that refers to itself would keep all responses alive until garbage collection.
        try:
            async with self.slots:
                await query(part)
        except UsageError as error:
            rest = self._remaining_parts(part, error, isolated=report is not None)
            if not rest:
                if report is None:
                    raise
                report(part, error)
                return
            delay = self.retry_delay(error, rest[0].failures) if rest[0].failures else 0.0
        else:
            return
        await asyncio.sleep(delay)
        first, *others = rest
        if report is None:
            await self._run_part(first, query, report, group)
        else:
            group.create_task(self._run_part(first, query, report, group))
        for other in others:
            group.create_task(self._run_part(other, query, report, group))

    def _remaining_parts(self, part: P, error: UsageError, *, isolated: bool) -> tuple[P, ...]:
        """Return the parts that remain after a failure: halves, the same once more, or none if hopeless."""
        is_unavailable = isinstance(error, SourceUnavailable) and not isinstance(error, SourceTimeout)
        # An unavailable server is so for all parts; a slow or refusing one may be so because of a single one.
        if isinstance(error, QueryTooLarge) or (isolated and not is_unavailable):
            return part.split()
        if isinstance(error, SourceRefused) or part.failures >= self.retries:
            return ()
        again = replace(part, failures=part.failures + 1)
        # Some servers report only "unavailable" for a query that is too large.
        smaller = isinstance(error, SourceTimeout) or again.failures > 1
        return (again.split() if smaller else ()) or (again,)

    def retry_delay(self, error: UsageError, failures: int) -> float:
        """Return the seconds to wait after this number of failures, at least those that the server asked for."""
        requested = error.retry_after if isinstance(error, SourceUnavailable) else 0.0
        return max(requested, self.backoff.delay(failures, rng=self.rng))
