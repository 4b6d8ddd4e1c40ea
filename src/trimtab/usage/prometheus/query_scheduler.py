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

from trimtab.aio import side_by_side
from trimtab.kube.rest.retry import Backoff
from trimtab.usage.errors import BadAnswer, SourceAway, SourceSlow, TooMuchAsked, UsageError
from trimtab.usage.prometheus.sharding import Part

T = TypeVar("T")


Ask = Callable[[Part], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Patience:
    """How many at a time, and how often again."""

    free: asyncio.Semaphore
    """Shared by all who ask this server."""
    retries: int
    backoff: Backoff
    rng: random.Random

    async def ask(
        self, question: Callable[[], Awaitable[T]], *, unless: tuple[type[UsageError], ...] = ()
    ) -> T:
        """The answer to one question that cannot be made smaller; not asked again after a failure named in `unless`."""
        failures = 0
        while True:
            try:
                return await question()
            except (SourceAway, BadAnswer) as error:
                failures += 1
                if failures > self.retries or isinstance(error, unless):
                    raise
                await asyncio.sleep(self.delay(error, failures))

    async def ask_all(self, parts: Iterable[Part], question: Ask) -> None:
        """Every part answered, whole or in smaller ones."""
        async with side_by_side() as group:
            for part in parts:
                group.create_task(self._one(part, question, group))

    async def _one(self, part: Part, question: Ask, group: asyncio.TaskGroup) -> None:
        # Not a function inside `ask_all`: one that names itself is kept, and all that was answered with it, until the
        # collector comes by.
        try:
            async with self.free:
                await question(part)
        except (TooMuchAsked, SourceAway, BadAnswer) as error:
            rest = self._rest(part, error)
            if not rest:
                raise
            delay = self.delay(error, rest[0].failures) if rest[0].failures else 0.0
        else:
            return
        await asyncio.sleep(delay)
        first, *others = rest
        await self._one(first, question, group)
        for other in others:
            group.create_task(self._one(other, question, group))

    def _rest(self, part: Part, error: UsageError) -> tuple[Part, ...]:
        """What is left to ask after a failure: smaller parts, or the same once more; nothing when it is hopeless."""
        if isinstance(error, TooMuchAsked):
            return part.halves()
        if part.failures >= self.retries:
            return ()
        again = replace(part, failures=part.failures + 1)
        # Some servers say no more than "unavailable" of a query that is too much for them.
        smaller = isinstance(error, SourceSlow) or again.failures > 1
        return (again.halves() if smaller else ()) or (again,)

    def delay(self, error: UsageError, failures: int) -> float:
        wished = error.retry_after if isinstance(error, SourceAway) else 0.0
        return max(wished, self.backoff.delay(failures, rng=self.rng))
