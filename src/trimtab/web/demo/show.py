"""The demo under way: the stage in fast time, with the dashboard's board on it.

A week goes by as fast as it can; then time goes on slowly, so that what a viewer does has its effect before their eyes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Never

from trimtab.lab.simulator.stage import Stage
from trimtab.web.demo.cluster import DAY, INTENDED, SECONDS, STEP, cluster, policies
from trimtab.web.demo.intents import SimulatedIntents
from trimtab.web.operating import OperatorBoard

HOUR = 3600.0
POINTS_EVERY = 1800.0
"""Simulated seconds between two points of the cluster's curves."""
STEPS_A_TURN = 2
"""Steps after which the loop of intents takes a turn,"""
HOURS_A_LOOK = 2
"""and hours after which the board looks, while time flies."""
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
            lambda: desk, name="demo", clock=lambda: stage.world.time, every=POINTS_EVERY, fresh=HOUR
        )

    async def play(self) -> None:
        """All days, as fast as they can be."""
        hours = round(self.days * 24)
        for hour in range(0, hours, HOURS_A_LOOK):
            await self._run(min(HOURS_A_LOOK, hours - hour) * HOUR)
            self.board.note = f"Simulated: day {hour // 24 + 1} of {self.days:g}, at full speed."
            await self.board.look()
        slow = STEP / BREATH
        self.board.note = f"{self.days:g} simulated days are over; time goes on at {slow:g} times its pace."
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

    async def _run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            await self._stage.run(STEP)
            self._steps += 1
            if self._steps % STEPS_A_TURN == 0:
                await self._intents.turn()


@asynccontextmanager
async def show(*, days: float, seed: int) -> AsyncIterator[Show]:
    """A demo of so many days; the same for the same seed."""
    scene = cluster(days=days, seed=seed)
    async with Stage(scene, policies=policies(), seed=seed, keep=(days + 1) * DAY, pack=True) as stage:
        yield Show(stage, days=days)
