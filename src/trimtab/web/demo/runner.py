"""The demo under way: the stage in fast time, with the dashboard's board on it.

A week goes by as fast as it can; then time goes on slowly, so that what a viewer does has its effect before their eyes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Never

from trimtab.lab.simulator.simulation import Simulation
from trimtab.web.backends.live import LiveBackend
from trimtab.web.demo.agents import simulate_reports
from trimtab.web.demo.cluster import (
    DAY,
    INTENT_TARGET,
    LATENCY_OBJECTIVE,
    STEP,
    build_policies,
    build_scenario,
)
from trimtab.web.demo.intents import SimulatedIntents

HOUR = 3600.0
TREND_SECONDS = 1800.0
"""Simulated seconds between two points of the cluster's curves."""
STEPS_PER_CYCLE = 2
"""Steps after which the loop of intents takes a turn,"""
HOURS_PER_REFRESH = 2
"""and hours after which the board looks, while time flies."""
WARM_UP_HOURS = 2.0
"""Hours after which nothing is left to be compiled."""
STEP_PAUSE = 2.0
"""Seconds from one step to the next when the time that was asked for is over."""


class DemoRunner:
    """A demo; `play` it, and then `go_on` while somebody looks."""

    def __init__(self, simulation: Simulation, *, days: float) -> None:
        self._simulation = simulation
        self._intents = SimulatedIntents(simulation, service=INTENT_TARGET, seconds=LATENCY_OBJECTIVE)
        self._steps = 0
        self.days = days
        desk = replace(simulation.operator_state, intents=self._intents.state)
        self.backend = LiveBackend(
            lambda: desk,
            name="demo",
            clock=lambda: simulation.world.control_time,
            reports=lambda: simulate_reports(simulation.world),
            every=TREND_SECONDS,
            ttl=HOUR,
        )

    async def warm_up(self) -> None:
        """Rehearse, so that all that counts is compiled when it begins."""
        self._set_progress(
            "Getting ready; the first time, what counts is compiled for this machine.", done=0.0
        )
        await self.backend.notify()
        # In a thread of its own: whoever looks already is answered meanwhile.
        await asyncio.to_thread(asyncio.run, _compile_kernels())

    async def run(self, on_progress: Callable[[float], None] = lambda _share: None) -> None:
        """All days, as fast as they can be; `told` hears the share that is over."""
        hours = round(self.days * 24)
        for hour in range(0, hours, HOURS_PER_REFRESH):
            await self._run_steps(min(HOURS_PER_REFRESH, hours - hour) * HOUR)
            self._set_progress(
                f"Simulated: day {hour // 24 + 1} of {self.days:g}, at full speed.", done=hour / hours
            )
            await self.backend.refresh()
            on_progress(min(1.0, (hour + HOURS_PER_REFRESH) / hours))
        slow = STEP / STEP_PAUSE
        self._set_progress(f"{self.days:g} simulated days are over; time goes on at {slow:g} times its pace.")
        await self.backend.notify()

    async def run_slowly(self) -> Never:
        """Step after step, slowly."""
        while True:
            await asyncio.sleep(STEP_PAUSE)
            await self.advance(hours=STEP / HOUR)

    async def advance(self, *, hours: float) -> None:
        """Let so much simulated time pass, and look."""
        await self._run_steps(hours * HOUR)
        await self.backend.refresh()

    def _set_progress(self, text: str, *, done: float | None = None) -> None:
        self.backend.note, self.backend.progress = text, done

    async def _run_steps(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            await self._simulation.run(STEP)
            self._steps += 1
            if self._steps % STEPS_PER_CYCLE == 0:
                await self._intents.run_once()


async def _compile_kernels() -> None:
    async with open_demo(days=1.0, seed=0) as rehearsal:
        await rehearsal.advance(hours=WARM_UP_HOURS)


@asynccontextmanager
async def open_demo(*, days: float, seed: int) -> AsyncIterator[DemoRunner]:
    """A demo of so many days; the same for the same seed."""
    scene = build_scenario(days=days, seed=seed)
    async with Simulation(
        scene,
        policies=build_policies(),
        seed=seed,
        retention=(days + 1) * DAY,
        min_requeue_delay=STEP / 2,
        pack=True,
    ) as stage:
        found = DemoRunner(stage, days=days)
        await found.backend.refresh()  # at what there is before anything happens
        yield found
