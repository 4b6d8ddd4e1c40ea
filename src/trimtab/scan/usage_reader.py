"""How the past of a cluster is read: how wide each step, and how much at once, so that neither side is overwhelmed.

A small cluster is read at once and finely; a large one part by part, and more coarsely where even that would be too
much. The highest memory of a step is kept whatever its width; only short peaks of CPU are lost in a wide one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.aio import task_group
from trimtab.usage.source import Cost, Source, UsageQuery
from trimtab.usage.usage import Usage

STEPS = (300.0, 900.0, 1800.0, 3600.0)
MAX_SAMPLES = 40_000_000
"""Over this many in all, the next wider step is taken,"""
MAX_PART_SAMPLES = 6_000_000
"""and so many are read in one part: some 150 MB of memory."""
MAX_PARALLEL_PARTS = 2
"""So that a server is not idle while the last answers of a part are unpacked."""
LARGE_READ_SAMPLES = 10_000_000
"""Samples from which on the cost is worth telling before the read."""

ReportProgress = Callable[[str, float], None]
"""What is being done, and the share of it that is."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """One window that is to be read, and what that will cost."""

    query: UsageQuery
    cost: Cost

    @property
    def is_large(self) -> bool:
        return self.cost.samples > LARGE_READ_SAMPLES

    def split(self) -> list[UsageQuery]:
        """The window in pieces of equal length, but for the last."""
        ask = self.query
        steps = max(1, ask.steps * MAX_PART_SAMPLES // max(self.cost.samples, MAX_PART_SAMPLES))
        length = steps * ask.step
        begins = [ask.start + number * length for number in range(-(-ask.steps // steps))]
        return [
            UsageQuery(
                start=begin, end=min(begin + length, ask.end), step=ask.step, namespaces=ask.namespaces
            )
            for begin in begins
        ]


async def plan_read(
    source: Source[Any], *, window: float, step: float | None, now: float, namespaces: Sequence[str]
) -> ReadPlan:
    """How to read the last so many seconds; `step` is the width that the user wants, if any."""

    async def reading(width: float) -> ReadPlan:
        # A row tells of the step that ends then; the only sample of a source without a past is in the one not over.
        until = now + width if source.capabilities.polled else now
        ask = UsageQuery.last(window, now=until, step=width, namespaces=namespaces)
        return ReadPlan(ask, await source.estimate_cost(ask))

    if step is not None:
        return await reading(step)
    found = await reading(STEPS[0])
    wider = next(
        (width for width in STEPS if found.cost.samples * STEPS[0] / width <= MAX_SAMPLES), STEPS[-1]
    )
    return found if wider == STEPS[0] else await reading(wider)


async def read_usage(
    source: Source[Any],
    reading: ReadPlan,
    observe_usage: Callable[[Usage], None],
    *,
    progress: ReportProgress,
) -> None:
    """Hand over the parts in the order of time; while one is taken in, in a thread, the next is on its way."""
    parts = reading.split()
    shares = [0.0] * len(parts)

    async def one(number: int) -> Usage:
        def told(share: float) -> None:
            shares[number] = share
            progress("reading usage", sum(shares) / len(parts))

        return await source.read(parts[number], progress=told)

    on_their_way: deque[asyncio.Task[Usage]] = deque()
    async with task_group() as group:
        for number in range(len(parts)):
            on_their_way.append(group.create_task(one(number)))
            if len(on_their_way) == MAX_PARALLEL_PARTS:
                await asyncio.to_thread(observe_usage, await on_their_way.popleft())
        for last in on_their_way:
            await asyncio.to_thread(observe_usage, await last)
