"""The utilization server: it holds the load profile of each stress pod and sends it, period by period, over HTTP.

A workload is uploaded; a pod and its Service are registered for one of its series; the two are connected, and the pod
receives its first load. Each period brings the next load. The caller of `advance` owns the clock, so that it knows
which period a measurement belongs to; `serve` advances in real time.

`transport` decides how a pod is reached: directly within a cluster, through the API server from outside.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np
from aiohttp import web

from trimtab.errors import TrimtabError
from trimtab.lab.emulator.load_profile import LoadProfile, PodDemand

MAX_UPLOAD_BYTES = 256 << 20
"""The largest upload in bytes."""

SendDemand = Callable[[str, PodDemand], Awaitable[bool]]
"""Tells the pod behind a Service what to use; whether it heard."""


@dataclass(slots=True)
class RegisteredPod:
    """A pod that follows a workload."""

    service: str
    profile: LoadProfile
    period: int = -1
    """The one it is in; -1 before it was connected."""
    missed_updates: int = 0
    """The number of periods whose load could not be delivered."""

    @property
    def current_demand(self) -> PodDemand:
        return self.profile.demand_at(self.period) if self.period >= 0 else PodDemand(0, 0)


@dataclass(slots=True)
class UtilizationState:
    """The server's state, apart from HTTP."""

    send: SendDemand
    workloads: dict[str, dict[str, LoadProfile]] = field(default_factory=dict)
    pods: dict[str, RegisteredPod] = field(default_factory=dict)

    def upload(self, name: str, profiles: dict[str, LoadProfile]) -> None:
        self.workloads[name] = profiles

    def register(self, pod: str, *, service: str, workload: str, series: str) -> None:
        profiles = self.workloads.get(workload)
        if profiles is None:
            raise TrimtabError(
                f"workload {workload}: was not uploaded; there are: {', '.join(self.workloads)}"
            )
        if series not in profiles:
            raise TrimtabError(
                f"workload {workload}: has no series {series}; there are: {', '.join(profiles)}"
            )
        self.pods[pod] = RegisteredPod(service, profiles[series])

    async def connect(self, pod: str) -> PodDemand:
        """Connect a pod: tell it what to use first, and fail if it does not answer."""
        follower = self.get_pod(pod)
        if not await self.send(follower.service, follower.profile.demand_at(0)):
            raise TrimtabError(f"pod {pod}: its Service {follower.service} does not answer")
        follower.period = 0
        return follower.current_demand

    async def advance(self) -> None:
        """Start the next period for all connected pods at the same time."""
        connected = [each for each in self.pods.values() if each.period >= 0]
        for each in connected:
            each.period += 1
        replies = await asyncio.gather(*(self.send(each.service, each.current_demand) for each in connected))
        for each, one in zip(connected, replies, strict=True):
            each.missed_updates += not one

    def get_pod(self, pod: str) -> RegisteredPod:
        try:
            return self.pods[pod]
        except KeyError:
            known = ", ".join(self.pods) or "none"
            raise TrimtabError(f"pod {pod}: is not registered; there are: {known}") from None


def build_app(state: UtilizationState) -> web.Application:
    """Build the HTTP application of the server."""
    app = web.Application(client_max_size=MAX_UPLOAD_BYTES, middlewares=[_report_errors])
    routes = _Routes(state)
    app.add_routes(
        [
            web.put("/workloads/{workload}", routes.upload),
            web.put("/pods/{pod}", routes.register),
            web.post("/pods/{pod}/connection", routes.connect),
            web.get("/pods/{pod}", routes.show),
            web.delete("/pods/{pod}", routes.forget),
        ]
    )
    return app


@asynccontextmanager
async def serve(
    state: UtilizationState, *, host: str = "127.0.0.1", port: int = 0, period: float | None = None
) -> AsyncIterator[str]:
    """Serve and yield the address; with a period, the server advances by itself."""
    runner = web.AppRunner(build_app(state))
    await runner.setup()
    clock: asyncio.Task[None] | None = None
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        if period is not None:
            clock = asyncio.create_task(_run_clock(state, period))
        bound = runner.addresses[0]
        yield f"http://{bound[0]}:{bound[1]}"
    finally:
        if clock is not None:
            clock.cancel()
        await runner.cleanup()


async def _run_clock(state: UtilizationState, period: float) -> None:
    loop = asyncio.get_running_loop()
    due = loop.time() + period
    while True:
        await asyncio.sleep(max(0.0, due - loop.time()))
        due += period
        await state.advance()


@web.middleware
async def _report_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Return an error as one line with a remedy, as the command line does."""
    try:
        return await handler(request)
    except TrimtabError as error:
        return web.json_response({"error": str(error)}, status=400)
    except (KeyError, TypeError, ValueError) as error:
        return web.json_response({"error": f"the request body is invalid: {error!r}"}, status=400)


class _Routes:
    def __init__(self, state: UtilizationState) -> None:
        self._state = state

    async def upload(self, request: web.Request) -> web.Response:
        """Accept `{"step": 300, "series": {"web-0": {"cpu": [...], "memory": [...]}}}`, in cores and bytes."""
        body = await request.json()
        profiles = {name: _parse_profile(each, float(body["step"])) for name, each in body["series"].items()}
        self._state.upload(request.match_info["workload"], profiles)
        return web.json_response({"series": list(profiles)})

    async def register(self, request: web.Request) -> web.Response:
        """Accept `{"service": "web-0", "workload": "shop", "series": "web-0"}`."""
        body = await request.json()
        self._state.register(
            request.match_info["pod"],
            service=str(body["service"]),
            workload=str(body["workload"]),
            series=str(body["series"]),
        )
        return web.json_response({"registered": request.match_info["pod"]})

    async def connect(self, request: web.Request) -> web.Response:
        first = await self._state.connect(request.match_info["pod"])
        return web.json_response(first._asdict())

    async def show(self, request: web.Request) -> web.Response:
        """Return the current load of a pod, for pods that can reach the server themselves."""
        follower = self._state.get_pod(request.match_info["pod"])
        return web.json_response(
            {
                "period": follower.period,
                "unheard": follower.missed_updates,
                **follower.current_demand._asdict(),
            }
        )

    async def forget(self, request: web.Request) -> web.Response:
        self._state.get_pod(request.match_info["pod"])
        del self._state.pods[request.match_info["pod"]]
        return web.json_response({})


def _parse_profile(series: dict[str, list[float]], step: float) -> LoadProfile:
    cpu, memory = np.array(series["cpu"], float), np.array(series["memory"], float)
    if not len(cpu) or cpu.shape != memory.shape or cpu.ndim != 1:
        raise TrimtabError("series: cpu and memory must be lists of the same length, with a number a step")
    if not (
        np.isfinite(cpu).all() and np.isfinite(memory).all() and (cpu >= 0).all() and (memory >= 0).all()
    ):
        raise TrimtabError("series: cpu and memory must be numbers that are not negative")
    return LoadProfile(cpu, memory, step)


def encode_upload(profiles: dict[str, LoadProfile], step: float) -> bytes:
    """Encode the body of an upload."""
    series = {
        name: {"cpu": each.cpu.tolist(), "memory": each.memory.tolist()} for name, each in profiles.items()
    }
    return json.dumps({"step": step, "series": series}).encode()
