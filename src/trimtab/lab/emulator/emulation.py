"""Run stress pods through their load profiles on a real cluster, one period at a time, whichever strategy sizes them.

In a period the pods use what they were set to use; at its end their usage, throttling and OOM kills are measured, and
they get the targets of the next period. Between two periods pods may be resized; the operator's own executor does
that in place. A pod is reached through the API server, which every kubeconfig can, or straight by its Service within a
cluster.
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

from trimtab.actuation.decide.observation import DesiredChange
from trimtab.actuation.executor import ChangeExecutor
from trimtab.actuation.kube_cluster import KubeCluster, ReadRecords
from trimtab.api.duration import Duration
from trimtab.api.optimizationpolicy import Canary, UpdateStrategy, WorkloadState
from trimtab.errors import TrimtabError
from trimtab.kube.errors import KubeError
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import SERVICES
from trimtab.kube.runtime.event_recorder import EventRecorder
from trimtab.lab.emulator.load_profile import LoadProfile, PodDemand
from trimtab.lab.emulator.meter import (
    CADVISOR,
    Cadvisor,
    Counters,
    MeasuredUsage,
    diff_counters,
    read_current_usage,
)
from trimtab.lab.emulator.pods import StressPods, StressPodStatus
from trimtab.lab.emulator.run_log import PeriodRecord
from trimtab.lab.emulator.server import UtilizationState, encode_upload, serve
from trimtab.lab.emulator.stress_pod import CONTAINER, IMAGE, PORT, USAGE_PATH
from trimtab.sizing.evidence import add_headroom
from trimtab.usage.errors import UsageError
from trimtab.usage.source import Source, source
from trimtab.usage.sources.kubelet import KubeletSettings

REQUEST_TIMEOUT = 10.0


def _build_params(demand: PodDemand) -> dict[str, str]:
    return {"milli": str(demand.milli), "mib": str(demand.mib)}


class ApiServerTransport:
    """Needs the right to get services/proxy in the namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace

    async def __call__(self, service: str, demand: PodDemand) -> bool:
        path = SERVICES.path(namespace=self._namespace, name=f"{service}:{PORT}")
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                await self._client.request(
                    "GET",
                    f"{path}/proxy/{USAGE_PATH}",
                    params=_build_params(demand),
                    accept="*/*",
                    read=bytes,
                )
        except (KubeError, TimeoutError):
            return False
        return True


ONE_SECOND = Duration.from_seconds(1)
IMMEDIATE_UPDATE = UpdateStrategy(
    canary=Canary(percent=100, observation=ONE_SECOND, evidence_timeout=ONE_SECOND),
    min_interval=Duration.from_seconds(0),
)
MIN_CORES, MIN_BYTES = 0.02, 24 * 2**20
"""The resources that the stress pod itself needs to run."""

MeterFunction = Callable[[Mapping[str, StressPodStatus]], Awaitable[dict[str, MeasuredUsage]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class EmulationConfig:
    """The place and the pace at which load profiles run."""

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

    def build_resources(self, cores: float, held: float) -> Resources:
        """Build requests and the limits that belong to them."""
        milli = math.ceil(max(cores, MIN_CORES) * 1000)
        size = math.ceil(max(held, MIN_BYTES))
        return Resources(
            milli,
            None if self.cpu_limit is None else math.ceil(milli * self.cpu_limit),
            size,
            None if self.memory_limit is None else math.ceil(size * self.memory_limit),
        )

    def build_peak_resources(self, profile: LoadProfile) -> Resources:
        """Return the resources that the highest demand of a profile needs."""
        return self.build_resources(float(profile.cpu.max()), float(profile.memory.max()) + MIN_BYTES)


class Emulation:
    """Used as an async context manager: pods are there and connected within it, and gone after it."""

    def __init__(
        self,
        client: Client,
        profiles: Mapping[str, LoadProfile],
        config: EmulationConfig,
        *,
        sizes: Mapping[str, Resources] | None = None,
    ) -> None:
        """`sizes` are what pods begin with; what their highest demand asks for, where it is not said."""
        self._client, self._config = client, config
        self.profiles = dict(profiles)
        self.sizes = {
            name: (sizes or {}).get(name) or config.build_peak_resources(profile)
            for name, profile in profiles.items()
        }
        """The sizes that pods should have."""
        self.period = 0
        self.resize_errors: list[str] = []
        """The reasons why resizes were not made, in the cluster's words."""
        self._pods = StressPods(client, namespace=config.namespace, run=config.run, image=config.image)
        events = EventRecorder(
            client, component="trimtab.io/stress", instance=config.run, now=lambda: datetime.now(UTC)
        )
        cluster = KubeCluster(client, events)
        self._records = ReadRecords(cluster)
        self._executor = ChangeExecutor(cluster, self._records, may_write=lambda: True)
        self._server = UtilizationState(ApiServerTransport(client, config.namespace))
        self._counters: dict[str, Counters] = {}
        self._last_kills: dict[str, str] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._measure = await self._open_meter(stack)
            await stack.enter_async_context(self._pods.provision(self.sizes))
            seen = await self._pods.wait_ready(tuple(self.profiles), timeout=self._config.start_timeout)
            await self._connect(stack)
            # The first reading of the counters is their start; usage is the difference of two readings.
            await self._measure(seen)
            self._period_end = time.monotonic()
            # Kept open only when all of it is there: a failure before deletes the pods.
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def missed_updates(self) -> int:
        """Return how often a pod could not be reached to set its load."""
        return sum(each.missed_updates for each in self._server.pods.values())

    async def run_period(self) -> list[PeriodRecord]:
        """Let the period pass: what became of each pod in it."""
        # From the last end, not from now: otherwise each period would grow by the time that reading and
        # resizing take.
        # Missed time is not made up for: after a slow resize, the following periods would be too short.
        self._period_end = max(self._period_end + self._config.period, time.monotonic())
        await asyncio.sleep(self._period_end - time.monotonic())
        seen = await self._pods.list_status()
        used = await self._measure(seen)
        killed = {
            name
            for name, each in seen.items()
            # The status shows the last kill until the next one; counted each time, one kill would look like
            # many.
            if each.killed_at and self._last_kills.get(name) != each.killed_at
        }
        self._last_kills |= {name: seen[name].killed_at for name in killed}
        entries = [
            self._build_record(name, seen.get(name), used.get(name, MeasuredUsage()), killed=name in killed)
            for name in self.profiles
        ]
        await self._server.advance()
        self.period += 1
        return entries

    async def resize(self, entry: PeriodRecord) -> None:
        """Bring a pod closer to the size that it is to have, knowing how it just fared."""
        key = WorkloadKey("Deployment", self._config.namespace, entry.pod)
        # An unknown need forbids lowering memory, as in the operator.
        need = {} if math.isnan(entry.used_memory) else {CONTAINER: add_headroom(int(entry.used_memory))}
        desired = DesiredChange(
            sizes={CONTAINER: self.sizes[entry.pod]},
            strategy=IMMEDIATE_UPDATE,
            can_resize_in_place=True,
            needed_memory=need,
            is_urgent=entry.killed,
        )
        await self._records.read(key)
        report = await self._executor.reconcile(key, desired, now=int(time.time()))
        if report is not None and report.state in {WorkloadState.REVERTED, WorkloadState.SKIPPED}:
            self.resize_errors.append(f"{entry.pod}: {report.reason}")

    def _build_record(
        self, name: str, status: StressPodStatus | None, used: MeasuredUsage, *, killed: bool
    ) -> PeriodRecord:
        wanted = self.profiles[name].demand_at(self.period)
        size = self.sizes[name] if status is None else status.size
        return PeriodRecord(
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
        step = next(iter(self.profiles.values())).step
        await _send_request(session, "PUT", "/workloads/run", encode_upload(self.profiles, step))
        for name in self.profiles:
            body = f'{{"service": "{name}", "workload": "run", "series": "{name}"}}'.encode()
            await _send_request(session, "PUT", f"/pods/{name}", body)
            await _send_request(session, "POST", f"/pods/{name}/connection")

    async def _open_meter(self, stack: AsyncExitStack) -> MeterFunction:
        """Choose how usage is read: from the kernel's counters or from a usage source."""
        config = self._config
        if config.source == CADVISOR:
            settings = KubeletSettings(**config.source_settings)
            return partial(
                self._read_counters, Cadvisor(self._client, namespace=config.namespace, settings=settings)
            )
        opened: Source[Any] = await stack.enter_async_context(
            source(config.source, client=self._client, **config.source_settings)
        )
        health = await opened.check()
        if not health.ok:
            raise TrimtabError(f"--source {config.source}: {health.detail}; {health.advice}")
        return partial(self._read_source, opened)

    async def _read_source(
        self, opened: Source[Any], seen: Mapping[str, StressPodStatus]
    ) -> dict[str, MeasuredUsage]:
        try:
            found = await read_current_usage(
                opened, namespace=self._config.namespace, span=max(self._config.period, 15.0)
            )
        except UsageError:
            found = {}  # no sample is no reason to end: the next may come
        return {name: found.get(each.pod, MeasuredUsage()) for name, each in seen.items()}

    async def _read_counters(
        self, cadvisor: Cadvisor, seen: Mapping[str, StressPodStatus]
    ) -> dict[str, MeasuredUsage]:
        found: dict[str, Counters] = {}
        for node in {each.node for each in seen.values() if each.node}:
            found |= await cadvisor.read_node(node)
        used = {
            name: diff_counters(self._counters.get(each.pod), found.get(each.pod))
            for name, each in seen.items()
        }
        self._counters |= found
        return used


async def _send_request(
    session: aiohttp.ClientSession, method: str, path: str, body: bytes | None = None
) -> None:
    headers = {"Content-Type": "application/json"}
    async with session.request(method, path, data=body, headers=headers) as answer:
        if answer.status != 200:
            raise TrimtabError((await answer.json())["error"])
