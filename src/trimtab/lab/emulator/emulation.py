"""Stress pods that live through their courses on a real cluster, one period at a time, whoever sizes them.

A period: the pods are left alone with what they were told to use, then what they used and suffered is measured, and
they are told what to use next. Between two periods they may be given other sizes, which the operator's own actuator
brings about in place.
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
from typing import Any, Self

import aiohttp

from trimtab.actuation.decide.context import Wish
from trimtab.actuation.executor import Actuator
from trimtab.actuation.kube_cluster import LiveCluster
from trimtab.api.duration import Duration
from trimtab.api.optimizationpolicy import Canary, UpdateStrategy, WorkloadState
from trimtab.errors import TrimtabError
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.client import Client
from trimtab.kube.runtime.event_recorder import EventRecorder
from trimtab.lab.emulator.load_profile import Course
from trimtab.lab.emulator.meter import CADVISOR, Cadvisor, Counters, Used, between, glance
from trimtab.lab.emulator.pods import Seen, StressPods
from trimtab.lab.emulator.run_log import Entry
from trimtab.lab.emulator.server import Utilisation, serve, uploaded
from trimtab.lab.emulator.stress_pod import CONTAINER, IMAGE
from trimtab.lab.emulator.transport import ThroughApiServer
from trimtab.sizing.safe_minimum import with_headroom
from trimtab.usage.errors import UsageError
from trimtab.usage.source import Source, source
from trimtab.usage.sources.kubelet import KubeletSettings

BRIEF = Duration.of_seconds(1)
AT_ONCE = UpdateStrategy(
    canary=Canary(percent=100, observation=BRIEF, patience=BRIEF), min_interval=Duration.of_seconds(0)
)
LEAST_CORES, LEAST_BYTES = 0.02, 24 * 2**20
"""What the stress pod itself needs to be there."""

Measure = Callable[[Mapping[str, Seen]], Awaitable[dict[str, Used]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where and how courses are lived through."""

    namespace: str
    run: str = "stress"
    """Labels what is made, so that it is found again."""
    period: float = 15.0
    """Seconds on the wall that a step of a course takes."""
    cpu_limit: float | None = 1.0
    """The CPU limit beside the request; None for none."""
    memory_limit: float | None = 1.0
    source: str = CADVISOR
    source_settings: Mapping[str, Any] = field(default_factory=dict)
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

    def roomy(self, course: Course) -> Resources:
        """What the highest demand of a course asks for."""
        return self.size(float(course.cpu.max()), float(course.memory.max()) + LEAST_BYTES)


class Emulation:
    """Used as an async context manager: pods are there and connected within it, and gone after it."""

    def __init__(
        self,
        client: Client,
        courses: Mapping[str, Course],
        place: Place,
        *,
        sizes: Mapping[str, Resources] | None = None,
    ) -> None:
        """`sizes` are what pods begin with; what their highest demand asks for, where it is not said."""
        self._client, self._place = client, place
        self.courses = dict(courses)
        self.sizes = {
            name: (sizes or {}).get(name) or place.roomy(course) for name, course in courses.items()
        }
        """What each is to have."""
        self.period = 0
        self.refusals: list[str] = []
        """Why resizes were not made, in the cluster's words."""
        self._pods = StressPods(client, namespace=place.namespace, run=place.run, image=place.image)
        events = EventRecorder(
            client, component="trimtab.io/stress", instance=place.run, now=lambda: datetime.now(UTC)
        )
        self._actuator = Actuator(LiveCluster(client, events), may_write=lambda: True)
        self._server = Utilisation(ThroughApiServer(client, place.namespace))
        self._counters: dict[str, Counters] = {}
        self._killed: dict[str, str] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._measure = await self._meter(stack)
            await stack.enter_async_context(self._pods.made(self.sizes))
            seen = await self._pods.ready(tuple(self.courses), timeout=self._place.start_timeout)
            await self._connect(stack)
            await self._measure(seen)
            self._due = time.monotonic()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def unheard(self) -> int:
        """How often a pod could not be told what to use."""
        return sum(each.unheard for each in self._server.followers.values())

    async def live(self) -> list[Entry]:
        """Let the period pass: what became of each pod in it."""
        self._due = max(self._due + self._place.period, time.monotonic())
        await asyncio.sleep(self._due - time.monotonic())
        seen = await self._pods.seen()
        used = await self._measure(seen)
        killed = {
            name for name, each in seen.items() if each.killed_at and self._killed.get(name) != each.killed_at
        }
        self._killed |= {name: seen[name].killed_at for name in killed}
        entries = [
            self._entry(name, seen.get(name), used.get(name, Used()), killed=name in killed)
            for name in self.courses
        ]
        await self._server.advance()
        self.period += 1
        return entries

    async def resize(self, entry: Entry) -> None:
        """Bring a pod closer to the size that it is to have, knowing how it just fared."""
        key = WorkloadKey("Deployment", self._place.namespace, entry.pod)
        need = {} if math.isnan(entry.used_memory) else {CONTAINER: with_headroom(int(entry.used_memory))}
        wish = Wish(
            sizes={CONTAINER: self.sizes[entry.pod]},
            strategy=AT_ONCE,
            resizes_in_place=True,
            need=need,
            urgent=entry.killed,
        )
        report = await self._actuator.reconcile(key, wish, now=int(time.time()))
        if report is not None and report.state in {WorkloadState.REVERTED, WorkloadState.SKIPPED}:
            self.refusals.append(f"{entry.pod}: {report.reason}")

    def _entry(self, name: str, seen: Seen | None, used: Used, *, killed: bool) -> Entry:
        wanted = self.courses[name].at(self.period)
        size = self.sizes[name] if seen is None else seen.size
        return Entry(
            period=self.period,
            pod=name,
            wanted_cpu=wanted.cores,
            wanted_memory=float(wanted.bytes),
            used_cpu=used.cpu,
            used_memory=used.memory,
            cpu_request=(size.cpu_request or 0) / 1000,
            memory_request=float(size.memory_request or 0),
            throttled=used.throttled,
            killed=killed,
        )

    async def _connect(self, stack: AsyncExitStack) -> None:
        """Upload, register, connect: by HTTP, as any other client of the server would."""
        address = await stack.enter_async_context(serve(self._server))
        session = await stack.enter_async_context(aiohttp.ClientSession(address))
        step = next(iter(self.courses.values())).step
        await _asked(session, "PUT", "/workloads/run", uploaded(self.courses, step))
        for name in self.courses:
            body = f'{{"service": "{name}", "workload": "run", "series": "{name}"}}'.encode()
            await _asked(session, "PUT", f"/pods/{name}", body)
            await _asked(session, "POST", f"/pods/{name}/connection")

    async def _meter(self, stack: AsyncExitStack) -> Measure:
        """How usage is read: the kernel's counters, or a source of the house."""
        place = self._place
        if place.source == CADVISOR:
            settings = KubeletSettings(**place.source_settings)
            return partial(
                self._counted, Cadvisor(self._client, namespace=place.namespace, settings=settings)
            )
        opened: Source[Any] = await stack.enter_async_context(
            source(place.source, client=self._client, **place.source_settings)
        )
        health = await opened.check()
        if not health.ok:
            raise TrimtabError(f"--source {place.source}: {health.detail}; {health.advice}")
        return partial(self._glanced, opened)

    async def _glanced(self, opened: Source[Any], seen: Mapping[str, Seen]) -> dict[str, Used]:
        try:
            found = await glance(opened, namespace=self._place.namespace, span=max(self._place.period, 15.0))
        except UsageError:
            found = {}  # no sample is no reason to end: the next may come
        return {name: found.get(each.pod, Used()) for name, each in seen.items()}

    async def _counted(self, cadvisor: Cadvisor, seen: Mapping[str, Seen]) -> dict[str, Used]:
        found: dict[str, Counters] = {}
        for node in {each.node for each in seen.values() if each.node}:
            found |= await cadvisor.look(node)
        used = {
            name: between(self._counters.get(each.pod), found.get(each.pod)) for name, each in seen.items()
        }
        self._counters |= found
        return used


async def _asked(session: aiohttp.ClientSession, method: str, path: str, body: bytes | None = None) -> None:
    headers = {"Content-Type": "application/json"}
    async with session.request(method, path, data=body, headers=headers) as answer:
        if answer.status != 200:
            raise TrimtabError((await answer.json())["error"])
