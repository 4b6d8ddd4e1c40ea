"""Serve an HTTP application for the duration of a block."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trimtab.errors import TrimtabError

if TYPE_CHECKING:  # the configuration parses addresses, also in commands that serve nothing
    from aiohttp import web

_SHUTDOWN_GRACE = 5.0
"""The seconds that requests in progress get at shutdown."""


@asynccontextmanager
async def serve_application(
    application: web.Application,
    address: str,
    *,
    tls: ssl.SSLContext | None = None,
    grace_seconds: float = _SHUTDOWN_GRACE,
    cancel_on_disconnect: bool = False,
) -> AsyncIterator[int]:
    """Serve at this address and yield the port, which is useful if port 0 asked for any free one."""
    from aiohttp import web

    listener = _listen(address)
    runner = web.AppRunner(
        application,
        access_log=None,
        shutdown_timeout=grace_seconds,
        handler_cancellation=cancel_on_disconnect,
        # A compressed body of some kilobytes could take gigabytes; no client of ours compresses any.
        auto_decompress=False,
    )
    try:
        await runner.setup()
        await web.SockSite(runner, listener, ssl_context=tls).start()
        yield int(listener.getsockname()[1])
    finally:
        await runner.cleanup()
        listener.close()


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
    # Connections inherit TCP_NODELAY. asyncio sets it only on sockets with proto IPPROTO_TCP, which this one lacks.
    # Without it each response, written in two pieces, waits 40 ms for a delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def split_address(address: str) -> tuple[str | None, int]:
    """Return the host and port to listen on; the host is None for all addresses."""
    host, _, port = address.rpartition(":")
    if not (port.isdecimal() and int(port) < 65536):
        raise TrimtabError(f"address {address}: write it as HOST:PORT, like 127.0.0.1:8090")
    return host.strip("[]") or None, int(port)
