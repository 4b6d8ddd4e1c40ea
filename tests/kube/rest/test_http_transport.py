"""The HTTP transport that API servers and usage sources share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import aiohttp
import pytest

from trimtab.errors import TrimtabError
from trimtab.kube.auth import Connection
from trimtab.kube.auth.credentials import LocalCredentialProvider
from trimtab.kube.rest.http_transport import FailureKind, HttpFailure, HttpTransport

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
TIMEOUT = aiohttp.ClientTimeout(total=1.0)


class Failed(TrimtabError):
    """A failure, as it was passed to `map_error`."""

    def __init__(self, failure: HttpFailure) -> None:
        super().__init__(failure.kind.value)
        self.failure = failure


def connect(server: str) -> Connection:
    return Connection(
        server=server, context="", namespace="", credentials=LocalCredentialProvider(), trust=None
    )


@asynccontextmanager
async def serve(handle: Handler) -> AsyncIterator[str]:
    """Serve with a raw handler that is called after each request's headers."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await handle(reader, writer)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1")
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def fail(server: str) -> HttpFailure:
    async with HttpTransport(connect(server), map_error=Failed) as transport:
        with pytest.raises(Failed) as caught:
            async with transport.exchange("GET", "/x", timeout=TIMEOUT) as response:
                await response.read()
    return caught.value.failure


async def test_transport_reads_only_the_beginning_of_an_endless_error() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async with serve(handle) as server:
        failure = await fail(server)
    assert (failure.kind, failure.status, failure.retry_after) == (FailureKind.STATUS, 503, "7")
    assert 1 << 20 <= len(failure.body) < 2 << 20


async def test_transport_distinguishes_network_failures() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")

    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serve(cut) as server:
        assert (await fail(server)).kind is FailureKind.INTERRUPTED
    assert (await fail(server)).kind is FailureKind.NOT_CONNECTED
    async with serve(stay_silent) as server:
        failure = await fail(server)
    assert (failure.kind, failure.timed_out) == (FailureKind.TIMED_OUT, True)
    assert (await fail("http://a..b")).kind is FailureKind.NOT_CONNECTED


async def test_transport_sends_headers_of_proxy_with_plain_requests() -> None:
    received = b""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        received = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with serve(handle) as proxy:
        through = replace(connect("http://server.example"), proxy=proxy, proxy_headers={"X-Proxy": "secret"})
        async with (
            HttpTransport(through, map_error=Failed, headers={"X-Ours": "yes"}) as transport,
            transport.exchange("GET", "/x", params={"a": "b"}, timeout=TIMEOUT) as response,
        ):
            assert response.status == 200
    assert received.startswith(b"GET http://server.example/x?a=b HTTP/1.1")
    assert b"X-Proxy: secret" in received
    assert b"X-Ours: yes" in received
