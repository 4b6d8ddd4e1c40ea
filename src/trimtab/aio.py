"""Helpers for asyncio: a task group that raises its first error, threads that outlive cancellation, and fair slots."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Yield a task group; the first failure cancels the other tasks and is raised without its ExceptionGroup."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


async def run_in_thread(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Run a function in a thread and return its result; a cancelled caller waits until the thread has ended.

    A thread cannot be stopped, and a lock that the caller holds for it must not be released while it runs.
    """
    running = asyncio.create_task(asyncio.to_thread(work, *args, **named))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        raise


async def take_turns(items: Iterable[T], *, every: int = 16) -> AsyncIterator[T]:
    """Yield the items, and let other tasks run before every few of them: each may take milliseconds."""
    for number, item in enumerate(items):
        if number % every == 0:
            await asyncio.sleep(0)
        yield item


class FairSlots:
    """A number of slots for which the groups of those who wait take turns, so that a large group delays no other."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def hold(self, group: str) -> AsyncIterator[None]:
        """Hold one slot for the duration of a block."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(group)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, group: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            # Cancelled after it had got the slot: the next one must get it.
            if turn.done() and not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            group, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[group] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
