"""The demo under way: the stage in fast time, with the dashboard's board on it.

A week goes by as fast as it can; then time goes on slowly, so that what a viewer does has its effect before their eyes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Never

from trimtab.lab.simulator.simulation import Stage
from trimtab.web.backends.live import OperatorBoard
from trimtab.web.demo.agents import reports
from trimtab.web.demo.cluster import DAY, INTENDED, SECONDS, STEP, cluster, policies
from trimtab.web.demo.intents import SimulatedIntents

HOUR = 3600.0
POINTS_EVERY = 1800.0
"""Simulated seconds between two points of the cluster's curves."""
STEPS_A_TURN = 2
"""Steps after which the loop of intents takes a turn,"""
HOURS_A_LOOK = 2
"""and hours after which the board looks, while time flies."""
REHEARSED = 2.0
"""Hours after which nothing is left to be compiled."""
BREATH = 2.0
"""Seconds from one step to the next when the time that was asked for is over."""


class Show:
    """A demo; `play` it, and then `go_on` while somebody looks."""

    def __init__(self, stage: Stage, *, days: float) -> None:
        self._stage = stage
        self._intents = SimulatedIntents(stage, service=INTENDED, seconds=SECONDS)
        self._steps = 0
        self.days = days
        desk = replace(stage.desk, intents=self._intents.desk)
        self.board = OperatorBoard(
            lambda: desk,
            name="demo",
            clock=lambda: stage.world.time,
            reports=lambda: reports(stage.world),
            every=POINTS_EVERY,
            fresh=HOUR,
        )

    async def get_ready(self) -> None:
        """Rehearse, so that all that counts is compiled when it begins."""
        self._note("Getting ready; the first time, what counts is compiled for this machine.", done=0.0)
        await self.board.tell()
        # In a thread of its own: whoever looks already is answered meanwhile.
        await asyncio.to_thread(asyncio.run, _rehearse())

    async def play(self, told: Callable[[float], None] = lambda _share: None) -> None:
        """All days, as fast as they can be; `told` hears the share that is over."""
        hours = round(self.days * 24)
        for hour in range(0, hours, HOURS_A_LOOK):
            await self._run(min(HOURS_A_LOOK, hours - hour) * HOUR)
            self._note(f"Simulated: day {hour // 24 + 1} of {self.days:g}, at full speed.", done=hour / hours)
            await self.board.look()
            told(min(1.0, (hour + HOURS_A_LOOK) / hours))
        slow = STEP / BREATH
        self._note(f"{self.days:g} simulated days are over; time goes on at {slow:g} times its pace.")
        await self.board.tell()

    async def go_on(self) -> Never:
        """Step after step, slowly."""
        while True:
            await asyncio.sleep(BREATH)
            await self.pass_time(hours=STEP / HOUR)

    async def pass_time(self, *, hours: float) -> None:
        """Let so much simulated time pass, and look."""
        await self._run(hours * HOUR)
        await self.board.look()

    def _note(self, text: str, *, done: float | None = None) -> None:
        self.board.note, self.board.done = text, done

    async def _run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            await self._stage.run(STEP)
            self._steps += 1
            if self._steps % STEPS_A_TURN == 0:
                await self._intents.turn()


async def _rehearse() -> None:
    async with show(days=1.0, seed=0) as rehearsal:
        await rehearsal.pass_time(hours=REHEARSED)


@asynccontextmanager
async def show(*, days: float, seed: int) -> AsyncIterator[Show]:
    """A demo of so many days; the same for the same seed."""
    scene = cluster(days=days, seed=seed)
    async with Stage(
        scene, policies=policies(), seed=seed, keep=(days + 1) * DAY, patience=STEP / 2, pack=True
    ) as stage:
        found = Show(stage, days=days)
        await found.board.look()  # at what there is before anything happens
        yield found
