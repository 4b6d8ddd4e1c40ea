"""Several things at once, of which the first that fails speaks for all; and one that nobody can break off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """A group of tasks; the first that fails ends the others, and is raised by itself."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


async def run_in_thread(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """What a thread makes of it, which runs to its end: who is cancelled meanwhile goes only then.

    No thread can be stopped, and what it works on is nobody else's before: a lock that is held here would be given back.
    """
    running = asyncio.create_task(asyncio.to_thread(work, *args, **named))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        raise
