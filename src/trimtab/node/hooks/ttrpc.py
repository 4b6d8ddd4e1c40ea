"""The ttrpc protocol, containerd's lightweight gRPC: unary calls over any byte stream, as server and client.

No other Python implementation exists. Streaming calls and metadata, which NRI does not use, are not
supported.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from trimtab.node.hooks.messages.ttrpc_pb2 import Request, Response, Status
from trimtab.node.hooks.mux import Mux

HEADER = struct.Struct(">IIBB")
MAX_MESSAGE_BYTES = 4 << 20
REQUEST, RESPONSE = 1, 2
INTERNAL, UNIMPLEMENTED, DEADLINE_EXCEEDED = 13, 12, 4

Handler = Callable[[bytes], Awaitable[bytes]]
"""Handles a call: an encoded request in, an encoded response out."""


class TtrpcError(Exception):
    """The peer returned an error status or disconnected."""


@dataclass(frozen=True)
class Channel:
    """One stream of the mux, in messages."""

    mux: Mux
    connection: int

    async def read(self) -> tuple[int, int, bytes]:
        """Return stream, type and content of the next message; IncompleteReadError at the end."""
        stream = self.mux.open_stream(self.connection)
        length, number, kind, _ = HEADER.unpack(await stream.readexactly(HEADER.size))
        if length > MAX_MESSAGE_BYTES:
            raise ConnectionError(f"a message of {length} bytes is longer than ttrpc allows")
        return number, kind, await stream.readexactly(length)

    async def write(self, number: int, kind: int, content: bytes) -> None:
        if len(content) > MAX_MESSAGE_BYTES:
            raise TtrpcError(f"a message of {len(content)} bytes is longer than ttrpc allows")
        await self.mux.write(self.connection, HEADER.pack(len(content), number, kind, 0) + content)


async def serve(channel: Channel, handlers: Mapping[str, Handler]) -> None:
    """Handle calls by "service/method", each in its own task, until the stream ends."""
    async with asyncio.TaskGroup() as tasks:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                number, kind, content = await channel.read()
                if kind == REQUEST:
                    tasks.create_task(_handle_request(channel, number, content, handlers))


async def _handle_request(
    channel: Channel, number: int, content: bytes, handlers: Mapping[str, Handler]
) -> None:
    response = await _build_response(content, handlers)
    with suppress(ConnectionError):  # the caller disconnected
        await channel.write(number, RESPONSE, response.SerializeToString())


async def _build_response(content: bytes, handlers: Mapping[str, Handler]) -> Response:
    try:
        request = Request.FromString(content)
        handler = handlers.get(f"{request.service}/{request.method}")
        if handler is None:
            return _build_error(UNIMPLEMENTED, f"{request.service}/{request.method} is not implemented")
        async with asyncio.timeout(request.timeout_nano / 1e9 or None):
            return Response(payload=await handler(request.payload))
    except TimeoutError:
        return _build_error(DEADLINE_EXCEEDED, "no answer in time")
    except Exception as error:  # noqa: BLE001 - the peer waits for a response
        return _build_error(INTERNAL, f"{type(error).__name__}: {error}")


def _build_error(code: int, message: str) -> Response:
    return Response(status=Status(code=code, message=message))


class TtrpcClient:
    """Makes calls; `run` must be running to receive the responses."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._next = 1
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    async def call(self, service: str, method: str, message: bytes, *, timeout: float) -> bytes:
        """Return the response to a call; raise TimeoutError or TtrpcError without one."""
        number, self._next = self._next, self._next + 2  # even numbers are the server's
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        request = Request(service=service, method=method, payload=message, timeout_nano=int(timeout * 1e9))
        try:
            async with asyncio.timeout(timeout):
                await self._channel.write(number, REQUEST, request.SerializeToString())
                return await answer
        finally:
            del self._waiting[number]

    async def run(self) -> None:
        """Pass responses to their callers until the stream ends."""
        try:
            while True:
                number, kind, content = await self._channel.read()
                waiting = self._waiting.get(number)
                if kind == RESPONSE and waiting is not None and not waiting.done():
                    _resolve_future(waiting, content)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(TtrpcError("the peer disconnected"))


def _resolve_future(waiting: asyncio.Future[bytes], content: bytes) -> None:
    try:
        response = Response.FromString(content)
    except DecodeError as error:
        waiting.set_exception(TtrpcError(str(error)))
        return
    if response.status.code:
        waiting.set_exception(TtrpcError(f"{response.status.message} (code {response.status.code})"))
    else:
        waiting.set_result(response.payload)
