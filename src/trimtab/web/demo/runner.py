"""Run the demo: the simulation in fast time, with the dashboard on it.

The simulated days run at full speed; then time goes on slowly, so that viewers see the effect of their actions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Never

import numpy as np

from trimtab.kube.kinds.custom import NodeReport
from trimtab.kube.rest.resources import INTENTS, KPI_PROFILES
from trimtab.lab.simulator.simulation import Simulation
from trimtab.lab.simulator.world import SimulatedWorld
from trimtab.operator.config.intents import IntentSettings
from trimtab.operator.config.model import OperatorConfig
from trimtab.web.backends.live import LiveBackend
from trimtab.web.demo.cluster import (
    DAY,
    INTENT_TARGET,
    LATENCY_OBJECTIVE,
    STEP,
    build_policies,
    build_scenario,
)
from trimtab.web.demo.intents import SETTINGS, build_intent, build_profile

HOUR = 3600.0
TREND_SECONDS = 1800.0
"""The simulated seconds between two points of the cluster's curves."""
HOURS_PER_REFRESH = 2
"""The simulated hours between two refreshes of the dashboard at full speed."""
WARM_UP_HOURS = 2.0
"""The simulated hours after which all kernels are compiled."""
STEP_PAUSE = 2.0
"""The seconds between two steps after the requested days are over."""


class DemoRunner:
    """Runs a demo: `run` the days, then `run_slowly` while somebody watches."""

    def __init__(self, simulation: Simulation, *, days: float) -> None:
        self._simulation = simulation
        self.days = days
        self.backend = LiveBackend(
            lambda: simulation.controllers.views,
            name="demo",
            clock=lambda: simulation.world.control_time,
            reports=lambda: simulate_reports(simulation.world),
            every=TREND_SECONDS,
            ttl=HOUR,
        )

    async def warm_up(self) -> None:
        """Compile all kernels before the demo starts, by running a short rehearsal."""
        self._set_progress(
            "Getting ready. The first start takes longer: the kernels are compiled for this machine.",
            done=0.0,
        )
        await self.backend.notify()
        # A separate thread keeps the dashboard responsive meanwhile.
        await asyncio.to_thread(asyncio.run, _compile_kernels())

    async def run(self, on_progress: Callable[[float], None] = lambda _share: None) -> None:
        """Run all days at full speed; `on_progress` receives the completed share."""
        hours = round(self.days * 24)
        for hour in range(0, hours, HOURS_PER_REFRESH):
            await self._run_steps(min(HOURS_PER_REFRESH, hours - hour) * HOUR)
            self._set_progress(
                f"Simulated: day {hour // 24 + 1} of {self.days:g}, at full speed.", done=hour / hours
            )
            await self.backend.refresh()
            on_progress(min(1.0, (hour + HOURS_PER_REFRESH) / hours))
        speedup = STEP / STEP_PAUSE
        self._set_progress(
            f"{self.days:g} simulated days are over; time continues at {speedup:g} times real time."
        )
        await self.backend.notify()

    async def run_slowly(self) -> Never:
        """Continue step by step at a slow pace."""
        while True:
            await asyncio.sleep(STEP_PAUSE)
            await self.advance(hours=STEP / HOUR)

    async def advance(self, *, hours: float) -> None:
        """Advance the simulated time, and refresh the dashboard."""
        await self._run_steps(hours * HOUR)
        await self.backend.refresh()

    def _set_progress(self, text: str, *, done: float | None = None) -> None:
        self.backend.note, self.backend.progress = text, done

    async def _run_steps(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            await self._simulation.run(STEP)


async def _compile_kernels() -> None:
    async with open_demo(days=1.0, seed=0) as rehearsal:
        await rehearsal.advance(hours=WARM_UP_HOURS)


@asynccontextmanager
async def open_demo(*, days: float, seed: int) -> AsyncIterator[DemoRunner]:
    """Open a demo of this number of days; the same seed gives the same demo."""
    scenario = build_scenario(days=days, seed=seed)
    async with Simulation(
        scenario,
        policies=build_policies(),
        objects=[
            (KPI_PROFILES, build_profile(INTENT_TARGET.namespace)),
            (INTENTS, build_intent(INTENT_TARGET, LATENCY_OBJECTIVE)),
        ],
        config=OperatorConfig(intents=IntentSettings.model_validate(SETTINGS)),
        seed=seed,
        retention=(days + 1) * DAY,
        min_requeue_delay=STEP / 2,
        pack=True,
    ) as simulation:
        runner = DemoRunner(simulation, days=days)
        await runner.backend.refresh()  # show the initial state
        yield runner


def simulate_reports(world: SimulatedWorld) -> Iterator[NodeReport]:
    """Yield the report of each node's agent, as of the last step: the pressure, from the simulated usage.

    Reports have no knobs, because the lab has no kernel.
    """
    rows, physical = world.container_arrays, world.nodes.physical
    containers = rows.containers
    is_running = (containers.node >= 0) & (containers.runs_from <= world.now)
    nodes, node_count = containers.node[is_running], len(world.nodes.names)
    wanted = np.bincount(nodes, rows.cpu_demand[is_running], node_count)
    got = np.bincount(nodes, np.minimum(containers.cpu[is_running], rows.cpu_demand[is_running]), node_count)
    for node, name in enumerate(world.nodes.names):
        waited = 1.0 - float(got[node] / wanted[node]) if wanted[node] > 0 else 0.0
        full = float(physical.memory[node] / physical.memory_capacity[node])
        yield NodeReport(
            name=name,
            reported_at=world.control_time,
            pressure=(("cpu", waited), ("memory", max(0.0, full - 0.9) * 10)),
        )
