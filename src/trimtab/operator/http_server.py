"""Serve an HTTP application for the duration of a block."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from trimtab.errors import TrimtabError
from trimtab.operator.config.types import split_address

_SHUTDOWN_GRACE = 5.0
"""The seconds that requests in progress get at shutdown."""


@asynccontextmanager
async def serve_application(
    application: web.Application, address: str, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve at this address and yield the port, which is useful if port 0 asked for any free one."""
    host, port = split_address(address)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_GRACE)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=tls)
        try:
            await site.start()
        except OSError as error:
            raise TrimtabError(
                f"address {address}: the operator cannot listen here: {error.strerror or error}; choose another address"
            ) from None
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
