"""A server may be slow, and not silent."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from harness.builders.kubeconfigs import write
from trimtab.cli._common.scan_options import friendly_errors
from trimtab.errors import TrimtabError
from trimtab.kube.auth import Connection, load_connection
from trimtab.kube.errors import TimedOut
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import PODS
from trimtab.kube.rest.retry import RetryPolicy
from trimtab.kube.rest.transport import is_remote

PAGE = {"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": f"p{n}"}} for n in range(9)]}
SILENCE = 1.0
ONCE = RetryPolicy(attempts=1)

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def server(answer: Answer, folder: Path) -> AsyncIterator[Connection]:
    """A server that answers each request like this."""
    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    async with TestServer(application) as running:
        yield load_connection(
            kubeconfig=write(folder / "config", cluster={"server": str(running.make_url("/"))})
        )


async def trickle(request: web.Request) -> web.StreamResponse:
    """Send a page in small pieces, over more time than a server may be silent."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    body = json.dumps(PAGE).encode()
    for start in range(0, len(body), -(-len(body) // 8)):
        await asyncio.sleep(SILENCE / 4)
        await response.write(body[start : start - (-len(body) // 8)])
    return response


async def test_client_waits_for_an_answer_that_is_slow_and_not_silent(tmp_path: Path) -> None:
    """A page of pods over a slow line took longer than 30 s, and was given up as if the server were down."""
    async with server(trickle, tmp_path) as there, Client(there, retry=ONCE, timeout=SILENCE) as client:
        assert len(await client.list_objects(PODS)) == 9


@pytest.mark.parametrize("headers", [False, True], ids=["at once", "after its first bytes"])
async def test_client_closes_the_connection_to_a_silent_server(tmp_path: Path, *, headers: bool) -> None:
    async def stop_answering(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        if headers:
            await response.prepare(request)
            await response.write(b"{")
        await asyncio.sleep(60)
        return response

    async with server(stop_answering, tmp_path) as there, Client(there, retry=ONCE, timeout=0.2) as client:
        with pytest.raises(TimedOut) as raised:
            await client.list_objects(PODS)
        assert raised.value.sent
        with pytest.raises(TrimtabError, match="stopped responding; it is overloaded or the network is bad"):
            async with friendly_errors(there):
                await client.list_objects(PODS)


@pytest.mark.parametrize("compress", [False, True])
async def test_client_asks_for_compressed_answers_where_the_server_is_far(
    tmp_path: Path, *, compress: bool
) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.headers["Accept-Encoding"])
        body = json.dumps(PAGE).encode()
        if "gzip" in asked[-1]:
            return web.Response(
                body=gzip.compress(body),
                headers={"Content-Type": "application/json", "Content-Encoding": "gzip"},
            )
        return web.Response(body=body, content_type="application/json")

    async with server(answer, tmp_path) as there, Client(there, compress=compress) as client:
        assert len(await client.list_objects(PODS)) == 9
    assert asked == ["gzip" if compress else "identity"]


@pytest.mark.parametrize(
    ("address", "far"),
    [
        ("https://127.0.0.1:6443", False),
        ("https://[::1]:6443", False),
        ("https://localhost:6443", False),
        ("https://10.0.0.5:6443", True),
        ("https://api.example.org", True),
    ],
)
def test_transport_treats_servers_outside_machine_and_cluster_as_remote(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, far: bool
) -> None:
    connection = load_connection(kubeconfig=write(tmp_path / "config", cluster={"server": address}))
    assert is_remote(connection) is far
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert not is_remote(connection)
