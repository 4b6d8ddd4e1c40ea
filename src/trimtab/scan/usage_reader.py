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

from trimtab.aio import side_by_side
from trimtab.usage.source import Ask, Cost, Source
from trimtab.usage.usage import Usage

STEPS = (300.0, 900.0, 1800.0, 3600.0)
MOST_SAMPLES = 40_000_000
"""Over this many in all, the next wider step is taken,"""
SAMPLES_AT_ONCE = 6_000_000
"""and so many are read in one part: some 150 MB of memory."""
PARTS_AT_ONCE = 2
"""So that a server is not idle while the last answers of a part are unpacked."""
BIG = 10_000_000
"""Samples from which on the cost is worth telling before the read."""

Progress = Callable[[str, float], None]
"""What is being done, and the share of it that is."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One window that is to be read, and what that will cost."""

    ask: Ask
    cost: Cost

    @property
    def is_big(self) -> bool:
        return self.cost.samples > BIG

    def parts(self) -> list[Ask]:
        """The window in pieces of equal length, but for the last."""
        ask = self.ask
        steps = max(1, ask.steps * SAMPLES_AT_ONCE // max(self.cost.samples, SAMPLES_AT_ONCE))
        length = steps * ask.step
        begins = [ask.start + number * length for number in range(-(-ask.steps // steps))]
        return [
            Ask(start=begin, end=min(begin + length, ask.end), step=ask.step, namespaces=ask.namespaces)
            for begin in begins
        ]


async def plan(
    source: Source[Any], *, window: float, step: float | None, now: float, namespaces: Sequence[str]
) -> Reading:
    """How to read the last so many seconds; `step` is the width that the user wants, if any."""

    async def reading(width: float) -> Reading:
        # A row tells of the step that ends then; the only sample of a source without a past is in the one not over.
        until = now + width if source.capabilities.sampled else now
        ask = Ask.last(window, now=until, step=width, namespaces=namespaces)
        return Reading(ask, await source.cost(ask))

    if step is not None:
        return await reading(step)
    found = await reading(STEPS[0])
    wider = next(
        (width for width in STEPS if found.cost.samples * STEPS[0] / width <= MOST_SAMPLES), STEPS[-1]
    )
    return found if wider == STEPS[0] else await reading(wider)


async def read(
    source: Source[Any], reading: Reading, take_in: Callable[[Usage], None], *, progress: Progress
) -> None:
    """Hand over the parts in the order of time; while one is taken in, in a thread, the next is on its way."""
    parts = reading.parts()
    shares = [0.0] * len(parts)

    async def one(number: int) -> Usage:
        def told(share: float) -> None:
            shares[number] = share
            progress("reading usage", sum(shares) / len(parts))

        return await source.read(parts[number], progress=told)

    on_their_way: deque[asyncio.Task[Usage]] = deque()
    async with side_by_side() as group:
        for number in range(len(parts)):
            on_their_way.append(group.create_task(one(number)))
            if len(on_their_way) == PARTS_AT_ONCE:
                await asyncio.to_thread(take_in, await on_their_way.popleft())
        for last in on_their_way:
            await asyncio.to_thread(take_in, await last)
