"""A stress run: real pods on a real cluster follow a workload, and a recommender under test sizes them in place.

Each period: what the pods used is measured and shown to the strategy, in the workload's own time; where that has a new
size for a pod, the actuator of the operator brings it there, as in production; then the pods are told what to use
next. Without a strategy the pods keep the size that they begin with.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import aiohttp
import numpy as np

from trimtab.actuation.actuator import Actuator
from trimtab.actuation.live import LiveCluster
from trimtab.actuation.situation import Wish
from trimtab.api.duration import Duration
from trimtab.api.optimizationpolicy import Canary, UpdateStrategy, WorkloadState
from trimtab.errors import TrimtabError
from trimtab.kube.client import Client
from trimtab.kube.events import EventRecorder
from trimtab.kube.pods import Resources
from trimtab.kube.workloads import WorkloadKey
from trimtab.lab.emulator.burner import CONTAINER, IMAGE
from trimtab.lab.emulator.course import Course
from trimtab.lab.emulator.journal import Entry, Journal
from trimtab.lab.emulator.meter import CADVISOR, Cadvisor, Counters, Used, between, glance
from trimtab.lab.emulator.pods import Seen, StressPods
from trimtab.lab.emulator.reach import ThroughApiServer
from trimtab.lab.emulator.server import Send, Utilisation, serve, uploaded
from trimtab.sizing import Strategy, strategy
from trimtab.usage.errors import UsageError
from trimtab.usage.kubelet import KubeletSettings
from trimtab.usage.source import Source, source

BRIEF = Duration.of_seconds(1)
AT_ONCE = UpdateStrategy(
    canary=Canary(percent=100, observation=BRIEF, patience=BRIEF), min_interval=Duration.of_seconds(0)
)
LEAST_CORES, LEAST_BYTES = 0.02, 24 * 2**20
"""What the stress pod itself needs to be there."""

Told = Callable[[str, float], None]
"""What is being done, and the share of the run that is done."""
Measure = Callable[[Mapping[str, Seen]], Awaitable[dict[str, Used]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How a workload is to be followed."""

    namespace: str
    name: str = "stress"
    """What the pods are called, with a number behind it."""
    period: float = 15.0
    """Seconds on the wall that a step of the workload takes."""
    periods: int | None = None
    """How many steps are followed; all when None."""
    strategy: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    update: float = 3600.0
    """Seconds of the workload's own time from one recommendation to the next."""
    cpu_limit: float | None = 1.0
    """The CPU limit beside the request; None for none."""
    memory_limit: float | None = 1.0
    source: str = CADVISOR
    source_settings: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, Resources] = field(default_factory=dict)
    """What pods begin with; what their highest demand asks for, where it is not said."""
    image: str = IMAGE
    start_timeout: float = 120.0

    def size(self, cores: float, held: float) -> Resources:
        """Requests, and the limits that go with them."""
        milli = math.ceil(max(cores, LEAST_CORES) * 1000)
        size = math.ceil(max(held, LEAST_BYTES))
        return Resources(
            milli,
            None if self.cpu_limit is None else math.ceil(milli * self.cpu_limit),
            size,
            None if self.memory_limit is None else math.ceil(size * self.memory_limit),
        )


class StressRun:
    """One run, from the first pod to the last."""

    def __init__(self, client: Client, courses: Mapping[str, Course], plan: Plan) -> None:
        self._client, self._plan = client, plan
        self._courses = dict(courses)
        self._names = tuple(courses)
        self._pods = StressPods(client, namespace=plan.namespace, run=plan.name, image=plan.image)
        self._sizes = {
            name: plan.sizes.get(name)
            or plan.size(float(course.cpu.max()), float(course.memory.max()) + LEAST_BYTES)
            for name, course in self._courses.items()
        }
        self._strategy: Strategy[Any] | None = (
            None if plan.strategy is None else strategy(plan.strategy, len(courses), **plan.settings)
        )
        events = EventRecorder(
            client, component="trimtab.io/stress", instance=plan.name, now=lambda: datetime.now(UTC)
        )
        self._actuator = Actuator(LiveCluster(client, events), may_write=lambda: True)
        self._counters: dict[str, Counters] = {}
        self._killed: dict[str, str] = {}
        self.journal = Journal()

    async def run(self, told: Told = lambda _text, _share: None) -> Journal:
        """Follow the workload to its end; everything that was made is gone afterwards."""
        plan = self._plan
        periods = plan.periods or max(course.periods for course in self._courses.values())
        send = ThroughApiServer(self._client, plan.namespace)
        async with AsyncExitStack() as stack:
            measure = await self._measure(stack)
            told("starting pods", 0.0)
            await stack.enter_async_context(self._pods.made(self._sizes))
            seen = await self._pods.ready(self._names, timeout=plan.start_timeout)
            state = await self._connected(stack, send)
            await measure(seen)
            due = time.monotonic()
            for period in range(periods):
                told(f"period {period + 1} of {periods}", period / periods)
                due += plan.period
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                seen = await self._pods.seen()
                await self._account(period, seen, await measure(seen))
                await state.advance()
            self.journal.unheard = sum(each.unheard for each in state.followers.values())
            told("taking the pods away", 1.0)
        return self.journal

    async def _connected(self, stack: AsyncExitStack, send: Send) -> Utilisation:
        """Upload, register, connect: by HTTP, as any other client of the server would."""
        state = Utilisation(send)
        address = await stack.enter_async_context(serve(state))
        session = await stack.enter_async_context(aiohttp.ClientSession(address))
        step = next(iter(self._courses.values())).step
        await _asked(session, "PUT", "/workloads/run", uploaded(self._courses, step))
        for name in self._names:
            body = f'{{"service": "{name}", "workload": "run", "series": "{name}"}}'.encode()
            await _asked(session, "PUT", f"/pods/{name}", body)
            await _asked(session, "POST", f"/pods/{name}/connection")
        return state

    async def _measure(self, stack: AsyncExitStack) -> Measure:
        """How usage is read: the kernel's counters, or a source of the house."""
        plan = self._plan
        if plan.source == CADVISOR:
            settings = KubeletSettings(**plan.source_settings)
            return partial(self._counted, Cadvisor(self._client, namespace=plan.namespace, settings=settings))
        opened: Source[Any] = await stack.enter_async_context(
            source(plan.source, client=self._client, **plan.source_settings)
        )
        health = await opened.check()
        if not health.ok:
            raise TrimtabError(f"--source {plan.source}: {health.detail}; {health.advice}")

        async def measured(seen: Mapping[str, Seen]) -> dict[str, Used]:
            try:
                found = await glance(opened, namespace=plan.namespace, span=max(plan.period, 15.0))
            except UsageError:
                found = {}  # no sample is no reason to end: the next may come
            return {name: found.get(each.pod, Used()) for name, each in seen.items()}

        return measured

    async def _counted(self, cadvisor: Cadvisor, seen: Mapping[str, Seen]) -> dict[str, Used]:
        nodes = {each.node for each in seen.values() if each.node}
        found: dict[str, Counters] = {}
        for node in nodes:
            found |= await cadvisor.look(node)
        used = {}
        for name, each in seen.items():
            now = found.get(each.pod)
            used[name] = between(self._counters.get(each.pod), now)
            if now is not None:
                self._counters[each.pod] = now
        return used

    async def _account(self, period: int, seen: Mapping[str, Seen], used: Mapping[str, Used]) -> None:
        killed = self._newly_killed(seen)
        for name in self._names:
            wanted, got = self._courses[name].at(period), used.get(name, Used())
            size = seen[name].size if name in seen else self._sizes[name]
            self.journal.entries.append(
                Entry(
                    period=period,
                    pod=name,
                    wanted_cpu=wanted.cores,
                    wanted_memory=float(wanted.bytes),
                    used_cpu=got.cpu,
                    used_memory=got.memory,
                    cpu_request=(size.cpu_request or 0) / 1000,
                    memory_request=float(size.memory_request or 0),
                    throttled=got.throttled,
                    killed=name in killed,
                )
            )
        if self._strategy is not None:
            await self._resize(self._strategy, period, used, killed)

    def _newly_killed(self, seen: Mapping[str, Seen]) -> set[str]:
        new = {
            name for name, each in seen.items() if each.killed_at and self._killed.get(name) != each.killed_at
        }
        self._killed |= {name: seen[name].killed_at for name in new}
        return new

    async def _resize(
        self, sizer: Strategy[Any], period: int, used: Mapping[str, Used], killed: set[str]
    ) -> None:
        course = self._courses[self._names[0]]
        now = course.time(period)
        samples = [used.get(name, Used()) for name in self._names]
        sizer.observe(
            now, np.array([each.cpu for each in samples]), np.array([each.memory for each in samples])
        )
        if killed:
            places = np.array([place for place, name in enumerate(self._names) if name in killed], np.intp)
            held = [float(self._sizes[self._names[place]].memory_limit or 0) for place in places]
            sizer.observe_oom(now, places, np.array(held))
        every = max(1, round(self._plan.update / course.step))
        if killed or (period + 1) % every == 0:
            self._want(sizer, now)
        for place, name in enumerate(self._names):
            await self._reconcile(name, samples[place])

    def _want(self, sizer: Strategy[Any], now: float) -> None:
        """New sizes for those whose request is no plausible answer any more."""
        answer = sizer.recommend(now)
        for place, name in enumerate(self._names):
            size = self._sizes[name]
            cores, held = (size.cpu_request or 0) / 1000, float(size.memory_request or 0)
            cpu, memory = (
                _moved(
                    have, float(bounds.lower[place]), float(bounds.target[place]), float(bounds.upper[place])
                )
                for have, bounds in ((cores, answer.cpu), (held, answer.memory))
            )
            wanted = self._plan.size(cpu, memory)
            if wanted != size:
                self._sizes[name] = wanted
                self.journal.resizes += 1

    async def _reconcile(self, name: str, used: Used) -> None:
        key = WorkloadKey("Deployment", self._plan.namespace, name)
        need = {} if math.isnan(used.memory) else {CONTAINER: int(used.memory)}
        wish = Wish(
            sizes={CONTAINER: self._sizes[name]},
            strategy=AT_ONCE,
            resizes_in_place=True,
            need=need,
            urgent=True,
        )
        report = await self._actuator.reconcile(key, wish, now=int(time.time()))
        if (
            report is not None
            and report.state in {WorkloadState.REVERTED, WorkloadState.SKIPPED}
            and report.reason
        ):
            self.journal.refusals.append(f"{name}: {report.reason}")


def _moved(have: float, lower: float, target: float, upper: float) -> float:
    if math.isnan(target) or lower <= have <= upper:
        return have
    return target


async def _asked(session: aiohttp.ClientSession, method: str, path: str, body: bytes | None = None) -> None:
    headers = {"Content-Type": "application/json"}
    async with session.request(method, path, data=body, headers=headers) as answer:
        if answer.status != 200:
            raise TrimtabError((await answer.json())["error"])
