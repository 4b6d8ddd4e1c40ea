"""A server of ours on its address, for as long as a block lasts."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from trimtab.errors import TrimtabError
from trimtab.operator.config.types import split_address

_SHUTDOWN_GRACE = 5.0
"""Seconds that answers under way have at the end."""


@asynccontextmanager
async def serve_application(
    application: web.Application, address: str, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve at this address; what is given is the port, which matters where any free one (0) was asked for."""
    host, port = split_address(address)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_GRACE)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=tls)
        try:
            await site.start()
        except OSError as error:
            raise TrimtabError(
                f"address {address}: cannot be listened on: {error.strerror or error}; name another"
            ) from None
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
