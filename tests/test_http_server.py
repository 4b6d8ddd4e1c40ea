"""Connections are limited, so that nobody keeps others out of a server."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop
from aiohttp import web

from trimtab.http_server import ConnectionLimits, serve_application

LIMITS = ConnectionLimits(total=4, per_peer=3, first_request=0.2)
HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(text="fine")

    application = web.Application()
    application.router.add_post("/", answer)
    async with serve_application(application, "127.0.0.1:0", limits=LIMITS, grace_seconds=0.1) as port:
        yield port


class Client:
    """A connection from one address of this machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def read(self) -> bytes:
        """Return the answer, or what came before the connection was closed."""
        try:
            async with asyncio.timeout(5):
                return await self.reader.readuntil(b"fine")
        except (ConnectionError, asyncio.IncompleteReadError):
            return b""

    async def is_answered(self) -> bool:
        self.writer.write(b"{}")
        return b"fine" in await self.read()


class Connect:
    """Opens connections that are closed at the end of a test."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.clients: list[Client] = []

    async def __call__(self, sent: bytes, *, address: str = "127.0.0.1") -> Client:
        opened = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(address, 0))
        self.clients.append(client := Client(*opened))
        client.writer.write(sent)
        await asyncio.sleep(0.02)
        return client


@pytest.fixture
async def connect(port: int) -> AsyncIterator[Connect]:
    opened = Connect(port)
    yield opened
    for client in opened.clients:
        client.writer.close()


async def test_connection_without_a_request_is_closed(connect: Connect) -> None:
    for sent in (b"", b"POST / HT"):
        client = await connect(sent)
        assert await client.read() == b""
    client = await connect(HEAD)
    await asyncio.sleep(2 * LIMITS.first_request)
    assert await client.is_answered()


async def test_peer_that_has_too_many_connections_loses_its_oldest_one(connect: Connect) -> None:
    first, *others = [await connect(HEAD) for _ in range(4)]
    assert await first.read() == b""
    for other in others:
        assert await other.is_answered()


async def test_full_server_closes_a_connection_of_the_peer_that_has_most(connect: Connect) -> None:
    quiet = await connect(HEAD, address="127.0.0.2")
    loud = [await connect(HEAD, address="127.0.0.3") for _ in range(3)]
    last = await connect(HEAD, address="127.0.0.4")
    assert await loud[0].read() == b""
    for client in (quiet, last, *loud[1:]):
        assert await client.is_answered()


async def test_whole_request_is_not_cut_off_for_an_unfinished_one(connect: Connect) -> None:
    whole = await connect(HEAD + b"{}")
    slow = [await connect(HEAD) for _ in range(3)]
    assert await slow[0].read() == b""
    assert b"fine" in await whole.read()
    assert await slow[1].is_answered()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_server_answers_on_the_event_loops_of_tests_and_of_the_operator(run: Callable[..., bytes]) -> None:
    """All others here run on asyncio's own loop, as the operator does not: it answered nobody."""

    async def ask() -> bytes:
        application = web.Application()
        application.router.add_get("/readyz", _say_fine)
        async with serve_application(application, "127.0.0.1:0", limits=LIMITS, grace_seconds=0.1) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
            found = await Client(reader, writer).read()
            writer.close()
            return found

    assert run(ask()).startswith(b"HTTP/1.1 200")


async def _say_fine(_: web.Request) -> web.Response:
    return web.Response(text="fine")
