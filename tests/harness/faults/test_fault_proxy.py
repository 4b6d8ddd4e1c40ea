"""Each fault, provoked through the proxy in front of the real server, as a plain HTTP client meets it."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from harness.cluster.port import ApiServer
from harness.faults import faults
from harness.faults.faultproxy import FaultProxy
from harness.faults.faults import Asked, FaultPlan


@pytest.fixture
async def client(cluster: ApiServer, fault_proxy: FaultProxy) -> AsyncIterator[aiohttp.ClientSession]:
    """A client that comes through the proxy."""
    trust = ssl.create_default_context(cafile=cluster.ca)
    async with aiohttp.ClientSession(
        fault_proxy.server,
        headers={"Authorization": f"Bearer {cluster.token}"},
        connector=aiohttp.TCPConnector(ssl=trust),
    ) as session:
        yield session


def _config_map(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"text": "x" * 1000}}


async def _next_event(watch: aiohttp.ClientResponse) -> dict[str, Any] | None:
    line = await watch.content.readline()
    return json.loads(line) if line else None


@pytest.fixture
def maps(cluster: ApiServer, namespace: str) -> str:
    """The path of a collection that holds one object."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    cluster.call("POST", path, _config_map("first"))
    return path


async def test_fault_proxy_passes_requests_unchanged(
    client: aiohttp.ClientSession, cluster: ApiServer, maps: str
) -> None:
    async with client.get(f"{maps}/first", headers={"Accept": "application/json"}) as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "application/json"
        assert await response.json() == cluster.call("GET", f"{maps}/first")


async def test_writes_pass_with_their_body(
    client: aiohttp.ClientSession, cluster: ApiServer, maps: str
) -> None:
    async with client.post(maps, json=_config_map("second")) as response:
        assert response.status == 201
    assert cluster.call("GET", f"{maps}/second")["data"] == {"text": "x" * 1000}


def test_kubectl_works_through_the_proxy_and_its_kubeconfig(
    cluster: ApiServer, fault_proxy: FaultProxy
) -> None:
    assert fault_proxy.server in fault_proxy.kubeconfig.read_text()


@pytest.mark.parametrize(
    ("code", "reason"),
    [(410, "Expired"), (429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable")],
)
async def test_fault_proxy_answers_with_an_http_error(
    client: aiohttp.ClientSession, fault_proxy: FaultProxy, maps: str, code: int, reason: str
) -> None:
    fault_proxy.fail_next(faults.status(code, retry_after=3))
    async with client.get(maps, params={"watch": "1"}) as response:
        assert response.status == code
        assert response.headers["Retry-After"] == "3"
        assert (await response.json())["reason"] == reason
    assert fault_proxy.injected == {str(code): 1}


async def test_fault_proxy_script_counts_and_matches_requests(
    client: aiohttp.ClientSession, fault_proxy: FaultProxy, maps: str
) -> None:
    fault_proxy.fail_next(faults.status(500), count=2, match=lambda asked: asked.method == "GET")

    async def get() -> int:
        async with client.get(maps) as response:
            return response.status

    async with client.post(maps, json=_config_map("second")) as response:
        assert response.status == 201
    assert [await get() for _ in range(3)] == [500, 500, 200]
    assert [asked.method for asked in fault_proxy.asked] == ["POST", "GET", "GET", "GET"]


async def test_fault_proxy_drops_a_request_before_the_server(
    client: aiohttp.ClientSession, fault_proxy: FaultProxy, cluster: ApiServer, maps: str
) -> None:
    fault_proxy.fail_next(faults.drop())
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await client.post(maps, json=_config_map("second"))
    assert not cluster.has(f"{maps}/second")
    assert fault_proxy.injected == {"drop": 1}


async def test_fault_proxy_loses_the_response_after_the_effect(
    client: aiohttp.ClientSession, fault_proxy: FaultProxy, cluster: ApiServer, maps: str
) -> None:
    fault_proxy.fail_next(faults.lose_answer())
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await client.post(maps, json=_config_map("second"))
    assert cluster.has(f"{maps}/second")
    assert fault_proxy.injected == {"lose answer": 1}


async def test_fault_proxy_truncates_a_response(
    client: aiohttp.ClientSession, fault_proxy: FaultProxy, maps: str
) -> None:
    fault_proxy.fail_next(faults.tear())
    async with client.get(maps) as response:
        assert response.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
    assert fault_proxy.injected == {"tear": 1}


@pytest.mark.parametrize("fault", [faults.delay(0.05), faults.slow(0.05)], ids=["delayed", "slow"])
async def test_fault_proxy_delays_a_whole_response(
    client: aiohttp.ClientSession, fault_proxy: FaultProxy, maps: str, fault: faults.Fault
) -> None:
    fault_proxy.fail_next(fault)
    async with client.get(maps) as response:
        items = (await response.json())["items"]
    assert "first" in [item["metadata"]["name"] for item in items]
    assert fault_proxy.injected == {fault.name: 1}


async def test_fault_proxy_never_responds(
    client: aiohttp.ClientSession, fault_proxy: FaultProxy, maps: str
) -> None:
    fault_proxy.fail_next(faults.silence())
    with pytest.raises(TimeoutError):
        await client.get(maps, timeout=aiohttp.ClientTimeout(total=0.5))
    assert fault_proxy.injected == {"silence": 1}


async def test_fault_proxy_delays_a_whole_watch(
    client: aiohttp.ClientSession, fault_proxy: FaultProxy, maps: str
) -> None:
    fault_proxy.fail_next(faults.delay(0.05))
    async with client.get(maps, params={"watch": "1", "timeoutSeconds": "1"}) as watch:
        events = [json.loads(line) async for line in watch.content]
    assert "first" in [event["object"]["metadata"]["name"] for event in events]


async def test_fault_proxy_cuts_a_watch_between_events(
    client: aiohttp.ClientSession, fault_proxy: FaultProxy, maps: str
) -> None:
    fault_proxy.fail_next(faults.cut(after=1))
    async with client.get(maps, params={"watch": "1"}) as watch:
        assert await _next_event(watch)
        with pytest.raises(aiohttp.ClientPayloadError):
            await _next_event(watch)
    assert fault_proxy.injected == {"cut": 1}


async def test_fault_proxy_cuts_a_watch_within_an_event(
    client: aiohttp.ClientSession, fault_proxy: FaultProxy, maps: str
) -> None:
    fault_proxy.fail_next(faults.tear(after=1))
    received = bytearray()

    async def receive(watch: aiohttp.ClientResponse) -> None:
        while chunk := await watch.content.readany():
            received.extend(chunk)

    async with client.get(maps, params={"watch": "1"}) as watch:
        with pytest.raises(aiohttp.ClientPayloadError):
            await receive(watch)
    whole, torn = received.split(b"\n")
    assert json.loads(whole)
    assert torn.startswith(b'{"type":"ADDED"')
    with pytest.raises(json.JSONDecodeError):
        json.loads(torn)


async def test_fault_proxy_ends_a_watch_like_a_server_timeout(
    client: aiohttp.ClientSession, fault_proxy: FaultProxy, maps: str
) -> None:
    fault_proxy.fail_next(faults.end(after=1))
    async with client.get(maps, params={"watch": "1"}) as watch:
        assert await _next_event(watch)
        assert await _next_event(watch) is None
    assert fault_proxy.injected == {"end": 1}


async def test_fault_proxy_expires_the_version_of_a_watch(
    client: aiohttp.ClientSession, fault_proxy: FaultProxy, maps: str
) -> None:
    fault_proxy.fail_next(faults.gone_event(after=1))
    async with client.get(maps, params={"watch": "1"}) as watch:
        assert await _next_event(watch)
        said = await _next_event(watch)
        assert said is not None
        assert (said["type"], said["object"]["code"], said["object"]["reason"]) == ("ERROR", 410, "Expired")
        assert await _next_event(watch) is None


async def test_fault_proxy_silences_a_watch(
    client: aiohttp.ClientSession, fault_proxy: FaultProxy, maps: str
) -> None:
    fault_proxy.fail_next(faults.silence(after=1))
    async with client.get(maps, params={"watch": "1"}) as watch:
        assert await _next_event(watch)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_next_event(watch), 0.5)
    assert fault_proxy.injected == {"silence": 1}


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        (faults.cut(), "lost"),
        (faults.end(), None),
        (faults.gone_event(), "ERROR"),
        (faults.silence(), "nothing"),
    ],
    ids=["cut", "end", "gone", "silence"],
)
async def test_fault_proxy_breaks_an_open_watch(
    client: aiohttp.ClientSession, fault_proxy: FaultProxy, maps: str, fault: faults.Fault, seen: str | None
) -> None:
    async def after_the_strike(watch: aiohttp.ClientResponse) -> str | None:
        try:
            event = await asyncio.wait_for(_next_event(watch), 0.5)
        except aiohttp.ClientPayloadError:
            return "lost"
        except TimeoutError:
            return "nothing"
        return event["type"] if event else None

    latest = {"watch": "1", "fieldSelector": "metadata.name=first"}
    async with client.get(maps, params=latest) as watch, client.get(maps, params=latest) as other:
        assert await _next_event(watch)
        assert await _next_event(other)
        assert fault_proxy.strike(fault) == 2
        assert await after_the_strike(watch) == seen
        assert await after_the_strike(other) == seen
    assert fault_proxy.injected == {fault.name: 2}


async def test_fault_proxy_listens_again_after_refusing_connections(
    client: aiohttp.ClientSession, fault_proxy: FaultProxy, maps: str
) -> None:
    async with client.get(maps, params={"watch": "1"}) as watch:
        assert await _next_event(watch)
        async with fault_proxy.refusing():
            with pytest.raises(aiohttp.ClientPayloadError):
                await watch.read()
            with pytest.raises(aiohttp.ClientConnectorError):
                await client.get(maps)
    async with client.get(maps) as response:
        assert response.status == 200


async def test_fault_proxy_plan_fails_requests_at_random_until_removed(
    client: aiohttp.ClientSession, fault_proxy: FaultProxy, maps: str
) -> None:
    async def statuses() -> list[int]:
        found = []
        for _ in range(30):
            async with client.get(maps) as response:
                found.append(response.status)
        return found

    plan = FaultPlan({faults.status(503): 0.5}, seed=1)
    fault_proxy.plan = plan
    expected = FaultPlan({faults.status(503): 0.5}, seed=1)
    assert await statuses() == [503 if expected.pick(Asked("GET", maps, {})) else 200 for _ in range(30)]
    fault_proxy.plan = None
    assert set(await statuses()) == {200}


async def test_fault_proxy_is_unavailable_while_the_server_is(
    client: aiohttp.ClientSession, cluster: ApiServer, maps: str
) -> None:
    async with client.get(maps, params={"watch": "1"}) as watch:
        assert await _next_event(watch)
        cluster.kill_apiserver()
        try:
            with pytest.raises(aiohttp.ClientError):
                await watch.read()
            with pytest.raises(aiohttp.ClientError):
                await client.get(maps)
        finally:
            cluster.start_apiserver()
    async with client.get(maps) as response:
        assert response.status == 200
