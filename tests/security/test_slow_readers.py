"""Clients that never read a response must not keep it in memory: any pod may ask for metrics."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import uvloop
from aiohttp import web

from harness.builders.certificates import LOOPBACK, Authority
from trimtab.http_server import ConnectionLimits, serve_application
from trimtab.node import http

LARGE = b"x" * (8 << 20)
FEW = 8
LIMIT = 0.5
"""Seconds in which a client has to read something."""
NO_LIMIT = 60.0
Serve = Callable[[float], AbstractAsyncContextManager[int]]


@asynccontextmanager
async def serve_operator(client_seconds: float) -> AsyncIterator[int]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=LARGE)

    application = web.Application()
    application.router.add_get("/metrics", answer)
    limits = ConnectionLimits(unread=FEW, unread_seconds=client_seconds)
    async with serve_application(application, "127.0.0.1:0", limits=limits) as port:
        yield port


@asynccontextmanager
async def serve_agent(client_seconds: float) -> AsyncIterator[int]:
    async with http.serve_http(
        "127.0.0.1:0",
        {"/metrics": lambda: (200, LARGE)},
        client_seconds=client_seconds,
        max_connections=FEW,
    ) as port:
        yield port


def ask_without_reading(port: int, *, buffer: int = 2048) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    client.connect(("127.0.0.1", port))
    client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    return client


async def count_ended(clients: list[socket.socket]) -> int:
    """Count the connections whose response was cut off; a whole one has all bytes."""
    ended = 0
    for client in clients:
        client.settimeout(5)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # the rest may arrive at once
        with client:
            received = 0
            try:
                while received < len(LARGE) and (piece := await asyncio.to_thread(client.recv, 1 << 20)):
                    received += len(piece)
            except ConnectionError:
                pass
            except TimeoutError:
                continue
            ended += received < len(LARGE)
    return ended


@pytest.mark.parametrize("serve", [serve_operator, serve_agent])
async def test_client_that_does_not_read_loses_its_connection(serve: Serve) -> None:
    async with serve(LIMIT) as port:
        clients = [await asyncio.to_thread(ask_without_reading, port) for _ in range(3 * FEW)]
        await asyncio.sleep(2 * LIMIT)
        assert await count_ended(clients) == len(clients)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/metrics") as page,
        ):
            assert await page.read() == LARGE


@pytest.mark.parametrize("serve", [serve_operator, serve_agent])
async def test_only_a_few_clients_at_a_time_may_leave_responses_unread(serve: Serve) -> None:
    async with serve(NO_LIMIT) as port:
        clients = [await asyncio.to_thread(ask_without_reading, port) for _ in range(3 * FEW)]
        await asyncio.sleep(0.3)  # until the server has sent what it can
        assert await count_ended(clients) >= 2 * FEW


async def read_slowly(client: socket.socket) -> int:
    """Read slowly for longer than a client may take that does not read, then the rest, and count the bytes."""
    client.settimeout(5)
    received, begin = 0, time.monotonic()
    while received < len(LARGE) and (piece := await asyncio.to_thread(client.recv, 1 << 16)):
        received += len(piece)
        if time.monotonic() < begin + 2 * LIMIT:
            await asyncio.sleep(0.01)
    return received


@pytest.mark.parametrize("serve", [serve_operator, serve_agent])
async def test_slow_client_that_goes_on_reading_gets_the_whole_response(serve: Serve) -> None:
    async with serve(LIMIT) as port:
        with await asyncio.to_thread(ask_without_reading, port, buffer=1 << 15) as client:
            assert await read_slowly(client) >= len(LARGE)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("serve", [serve_operator, serve_agent])
def test_client_that_goes_on_reading_is_not_closed_for_those_that_do_not(
    serve: Serve, run: Callable[..., int]
) -> None:
    async def read_among_idle_clients() -> int:
        async with serve(NO_LIMIT) as port:
            with (
                await asyncio.to_thread(ask_without_reading, port, buffer=1 << 15) as slow,
                ExitStack() as idle,
            ):
                reading = asyncio.create_task(read_slowly(slow))
                for _ in range(2 * FEW):
                    await asyncio.sleep(LIMIT / 10)
                    idle.enter_context(await asyncio.to_thread(ask_without_reading, port))
                return await reading

    assert run(read_among_idle_clients()) >= len(LARGE)


@pytest.mark.parametrize("size", [48 << 10, 256 << 10, 8 << 20])
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_tls_client_that_does_not_read_loses_its_connection(
    run: Callable[..., bool], size: int, tmp_path: Path
) -> None:
    """The buffers of TLS take a response that the client never reads, and writing is resumed."""
    pair = Authority(tmp_path, "own").issue("server", hosts=LOOPBACK)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.cert, pair.key)
    connected: list[asyncio.BaseTransport] = []

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        connected.append(request.transport)
        return web.Response(body=b"x" * size)

    async def is_cut_off() -> bool:
        application = web.Application()
        application.router.add_get("/metrics", answer)
        limits = ConnectionLimits(unread_seconds=LIMIT)
        async with serve_application(application, "127.0.0.1:0", tls=tls, limits=limits) as port:
            with await asyncio.to_thread(_ask_by_tls_without_reading, port):
                async with asyncio.timeout(20 * LIMIT):
                    while not connected or not connected[0].is_closing():
                        await asyncio.sleep(LIMIT / 10)
        return True

    assert run(is_cut_off())


def _ask_by_tls_without_reading(port: int) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    plain.connect(("127.0.0.1", port))
    client = context.wrap_socket(plain)
    client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    return client
