"""The utilization server over HTTP: a workload is uploaded, a pod registered, connected, and led through its periods."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import numpy as np
import pytest
from aiohttp import web

from trimtab.lab.emulator.load_profile import LoadProfile, PodDemand
from trimtab.lab.emulator.server import UtilizationState, encode_upload, serve
from trimtab.lab.emulator.stress_pod import USAGE_PATH

MIB = 2.0**20
COURSE = LoadProfile(np.array([0.1, 0.25, 0.5]), np.array([16.0, 32.0, 8.0]) * MIB, step=300.0)


class DirectTransport:
    """Reaches a pod by its address."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def __call__(self, service: str, demand: PodDemand) -> bool:
        params = {"milli": str(demand.milli), "mib": str(demand.mib)}
        try:
            async with self._session.get(f"http://{service}/{USAGE_PATH}", params=params) as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False


class Pod:
    """The HTTP side of a stress pod: it records the demands that it receives."""

    def __init__(self) -> None:
        self.demands: list[PodDemand] = []
        self.changed = asyncio.Condition()
        self.address = ""

    async def usage(self, request: web.Request) -> web.Response:
        async with self.changed:
            self.demands.append(PodDemand(int(request.query["milli"]), int(request.query["mib"])))
            self.changed.notify_all()
        return web.Response(text="ok")


@pytest.fixture
async def pod() -> AsyncIterator[Pod]:
    here, app = Pod(), web.Application()
    app.router.add_get(f"/{USAGE_PATH}", here.usage)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    here.address = f"127.0.0.1:{runner.addresses[0][1]}"
    yield here
    await runner.cleanup()


@pytest.fixture
async def state() -> AsyncIterator[UtilizationState]:
    async with aiohttp.ClientSession() as session:
        yield UtilizationState(DirectTransport(session))


async def _follow(session: aiohttp.ClientSession, pod: Pod) -> None:
    async with session.put("/workloads/shop", data=encode_upload({"web": COURSE}, 300.0)) as answer:
        assert await answer.json() == {"series": ["web"]}
    body = {"service": pod.address, "workload": "shop", "series": "web"}
    async with session.put("/pods/a", json=body) as answer:
        assert answer.status == 200
    async with session.post("/pods/a/connection") as answer:
        assert await answer.json() == {"milli": 100, "mib": 16}


async def test_emulator_server_leads_a_pod_through_its_workload_by_period(
    state: UtilizationState, pod: Pod
) -> None:
    async with serve(state) as address, aiohttp.ClientSession(address) as session:
        await _follow(session, pod)
        assert pod.demands == [(100, 16)]
        for _ in range(3):
            await state.advance()
        assert pod.demands == [(100, 16), (250, 32), (500, 8), (500, 8)]  # after the end it stays
        async with session.get("/pods/a") as answer:
            assert await answer.json() == {"period": 3, "unheard": 0, "milli": 500, "mib": 8}
        async with session.delete("/pods/a") as answer:
            assert answer.status == 200
        await state.advance()
        assert len(pod.demands) == 4


async def test_emulator_server_advances_by_itself_with_a_period(state: UtilizationState, pod: Pod) -> None:
    async with serve(state, period=0.01) as address, aiohttp.ClientSession(address) as session:
        await _follow(session, pod)
        async with pod.changed, asyncio.timeout(60):
            await pod.changed.wait_for(lambda: (500, 8) in pod.demands)


async def test_emulator_server_counts_and_retries_a_pod_that_does_not_answer(
    state: UtilizationState, pod: Pod
) -> None:
    state.upload("shop", {"web": COURSE})
    state.register("a", service=pod.address, workload="shop", series="web")
    await state.connect("a")
    state.pods["a"].service = "127.0.0.1:1"
    await state.advance()
    state.pods["a"].service = pod.address
    await state.advance()
    assert state.pods["a"].missed_updates == 1
    assert pod.demands == [(100, 16), (500, 8)]


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        (
            "PUT",
            "/pods/a",
            {"service": "a", "workload": "gone", "series": "x"},
            "workload gone: was not uploaded",
        ),
        (
            "PUT",
            "/pods/a",
            {"service": "a", "workload": "shop", "series": "x"},
            "has no series x; there are: web",
        ),
        ("PUT", "/pods/a", {"workload": "shop"}, "the request body is invalid: KeyError('service')"),
        ("POST", "/pods/b/connection", {}, "pod b: is not registered; there are: none"),
        (
            "PUT",
            "/workloads/w",
            {"step": 1, "series": {"a": {"cpu": [1], "memory": [1, 2]}}},
            "of the same length",
        ),
        ("PUT", "/workloads/w", {"step": 1, "series": {"a": {"cpu": [-1], "memory": [1]}}}, "not negative"),
        ("PUT", "/workloads/w", {"step": 1}, "KeyError('series')"),
    ],
)
async def test_emulator_server_reports_what_it_cannot_do_in_one_line(
    state: UtilizationState, method: str, path: str, body: dict[str, object], message: str
) -> None:
    state.upload("shop", {"web": COURSE})
    async with (
        serve(state) as address,
        aiohttp.ClientSession(address) as session,
        session.request(method, path, json=body) as answer,
    ):
        assert answer.status == 400
        assert message in (await answer.json())["error"]


async def test_emulator_server_cannot_connect_a_pod_that_does_not_answer(state: UtilizationState) -> None:
    state.upload("shop", {"web": COURSE})
    state.register("a", service="127.0.0.1:1", workload="shop", series="web")
    async with (
        serve(state) as address,
        aiohttp.ClientSession(address) as session,
        session.post("/pods/a/connection") as answer,
    ):
        assert "does not answer" in (await answer.json())["error"]
