"""Serve an HTTP application for the duration of a block."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from trimtab.client_progress import ClientProgress
from trimtab.errors import TrimtabError

if TYPE_CHECKING:  # the configuration parses addresses, also in commands that serve nothing
    from aiohttp import StreamReader, web

_SHUTDOWN_GRACE = 5.0
"""The seconds that requests in progress get at shutdown."""
_CHECKS_OF_PROGRESS = 6
"""The checks in the time that a client gets without reading."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits on connections, so that no client keeps the others out."""

    total: int = 1024
    per_peer: int = 512
    first_request: float = 5.0
    """The seconds in which a new connection has to send the head of a request, and before it to negotiate TLS."""
    unread: int = 64
    """The connections at a time whose clients do not read what was sent: each holds a whole response in memory."""
    unread_seconds: float = 30.0
    """The seconds without progress after which such a client loses its connection; a slow one keeps it."""


DEFAULT_LIMITS = ConnectionLimits()


@asynccontextmanager
async def serve_application(
    application: web.Application,
    address: str,
    *,
    tls: ssl.SSLContext | None = None,
    grace_seconds: float = _SHUTDOWN_GRACE,
    cancel_on_disconnect: bool = False,
    limits: ConnectionLimits = DEFAULT_LIMITS,
) -> AsyncIterator[int]:
    """Serve at this address and yield the port, which is useful if port 0 asked for any free one."""
    from aiohttp import web

    listener = _listen(address)
    connections = _Connections(limits)

    @web.middleware
    async def note_request(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        connections.note_request(request)
        return await handler(request)

    application.middlewares.insert(0, note_request)
    runner = web.AppRunner(
        application,
        access_log=None,
        shutdown_timeout=grace_seconds,
        handler_cancellation=cancel_on_disconnect,
        # A compressed body of some kilobytes could take gigabytes; no client of ours compresses any.
        auto_decompress=False,
    )
    server: asyncio.Server | None = None
    try:
        await runner.setup()
        accept = runner.server
        assert accept is not None
        server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(accept(), connections),
            sock=listener,
            ssl=tls,
            ssl_handshake_timeout=limits.first_request if tls else None,
        )
        yield int(listener.getsockname()[1])
    finally:
        if server is not None:
            server.close()
        await runner.cleanup()
        listener.close()


class _Connections:
    """The open connections by peer, the oldest first."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._by_peer: dict[str, dict[_Connection, None]] = {}
        self._by_handler: dict[asyncio.BaseProtocol, _Connection] = {}
        self._unread: dict[_Connection, None] = {}

    def add(self, connection: _Connection) -> None:
        """Add a connection; at the limit, close an old one of its peer, or of the peer with the most."""
        own = self._by_peer.setdefault(connection.peer, {})
        if len(own) >= self._limits.per_peer:
            _choose_to_close(own).abort()
        elif len(self._by_handler) >= self._limits.total:
            largest = max(self._by_peer, key=lambda peer: len(self._by_peer[peer]))
            _choose_to_close(self._by_peer[largest]).abort()
        self._by_peer.setdefault(connection.peer, {})[connection] = None
        self._by_handler[connection.handler] = connection
        connection.start_timer(self._limits.first_request)
        connection.watch_progress(self._limits.unread_seconds)

    def note_request(self, request: web.Request) -> None:
        if connection := self._by_handler.get(request.protocol):
            connection.note_request(request)

    def note_unread(self, connection: _Connection) -> None:
        """Note that a client does not read all; if too many do, close one with the least progress."""
        if len(self._unread) >= self._limits.unread:
            max(self._unread, key=_Connection.measure_rank).abort()
        self._unread[connection] = None
        connection.measure_rank()  # the progress is counted from here

    def note_read(self, connection: _Connection) -> None:
        self._unread.pop(connection, None)

    def remove(self, connection: _Connection) -> None:
        self._unread.pop(connection, None)
        if self._by_handler.pop(connection.handler, None) is None:
            return
        own = self._by_peer[connection.peer]
        del own[connection]
        if not own:
            del self._by_peer[connection.peer]


def _choose_to_close(connections: Iterable[_Connection]) -> _Connection:
    """Return the oldest connection that still has to send what it began, or the oldest one."""
    oldest, *others = connections
    return next((each for each in (oldest, *others) if not each.has_whole_request), oldest)


class _Connection(asyncio.Protocol):
    """Passes a connection on to the handler of requests while it is within the limits."""

    def __init__(self, handler: asyncio.Protocol, connections: _Connections) -> None:
        self.handler = handler
        self.peer = ""
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._progress: ClientProgress | None = None
        self._body: StreamReader | None = None

    @property
    def has_whole_request(self) -> bool:
        """True if the body of the last request was received."""
        return self._body is not None and self._body.is_eof()

    def start_timer(self, seconds: float) -> None:
        # Otherwise a client that never sends a request keeps its connection for ever.
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    def watch_progress(self, seconds: float) -> None:
        """Measure the progress of the client, and close the connection when it left something unread for so long.

        As long as the connection is open: a response that fits into the buffers of TLS and the kernel never pauses writing,
        and a client that does not read it would keep its connection for ever.
        """
        assert self._transport is not None
        progress = self._progress = ClientProgress(self._transport)

        def check() -> None:
            if progress.measure_idle() >= seconds:
                self.abort()
            else:
                interval = seconds / _CHECKS_OF_PROGRESS
                self._watch = asyncio.get_running_loop().call_later(interval, check)

        check()

    def measure_rank(self) -> tuple[float, int]:
        """Return what is largest for the connection whose client has the least progress."""
        assert self._progress is not None
        return self._progress.measure_rank()

    def note_request(self, request: web.Request) -> None:
        self._body = request.content
        _cancel(self._timer)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transports of uvloop have the methods of asyncio's, but not its base classes.
        self._transport = cast("asyncio.Transport", transport)
        self.peer = str((transport.get_extra_info("peername") or ("",))[0])
        self.handler.connection_made(transport)
        self._connections.add(self)

    def abort(self) -> None:
        """Close the connection at once, and forget it now: its end arrives later."""
        self._stop_timers()
        self._connections.remove(self)
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        self._connections.remove(self)
        self.handler.connection_lost(exc)

    def _stop_timers(self) -> None:
        _cancel(self._timer)
        _cancel(self._watch)

    def data_received(self, data: bytes) -> None:
        self.handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self.handler.eof_received()

    def pause_writing(self) -> None:
        self._connections.note_unread(self)
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        self._connections.note_read(self)
        self.handler.resume_writing()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _listen(address: str) -> socket.socket:
    """Bind the address; without a host, one socket for IPv4 and IPv6, so that both have the same port."""
    host, port = split_address(address)
    everywhere = host is None and socket.has_dualstack_ipv6()
    try:
        listener = socket.create_server(
            (host or "", port),
            family=socket.AF_INET6 if everywhere or ":" in (host or "") else socket.AF_INET,
            backlog=128,
            dualstack_ipv6=everywhere,
        )
    except OSError as error:
        raise TrimtabError(
            f"address {address}: cannot listen here: {error.strerror or error}; choose another address"
        ) from None
    # Connections inherit TCP_NODELAY. asyncio sets it only on sockets with proto IPPROTO_TCP, which is missing here.
    # Without it each response, written in two pieces, waits 40 ms for a delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def split_address(address: str) -> tuple[str | None, int]:
    """Return the host and port to listen on; the host is None for all addresses."""
    host, _, port = address.rpartition(":")
    if not (port.isdecimal() and int(port) < 65536):
        raise TrimtabError(f"address {address}: write it as HOST:PORT, like 127.0.0.1:8090")
    return host.strip("[]") or None, int(port)
