"""A minimal HTTP server for /metrics, /healthz and /readyz.

It is written on asyncio, because a web framework would be a sixteenth of the agent's memory. It handles one
request per connection and closes those without progress.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from trimtab.client_progress import ClientProgress
from trimtab.errors import TrimtabError

PageHandler = Callable[[], tuple[int, bytes]]
"""Returns the status and body of a page."""

_MAX_BYTES = 8192
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


@asynccontextmanager
async def serve_http(
    address: str, pages: dict[str, PageHandler], *, client_seconds: float = 5.0, max_connections: int = 256
) -> AsyncIterator[int]:
    """Serve these paths at `HOST:PORT` and yield the port, which matters for port 0.

    A client has `client_seconds` for its request, and then as long to read some more of the response. Beyond
    `max_connections`, one with the least progress is closed.
    """
    host, _, port = address.rpartition(":")

    connected: dict[asyncio.StreamWriter, ClientProgress] = {}  # the oldest first

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(connected) >= max_connections:
            least = max(connected, key=lambda each: connected[each].measure_rank())
            del connected[least]
            least.transport.abort()
        progress = connected[writer] = ClientProgress(writer.transport)
        # Otherwise a client that does not read keeps its connection, and the rest of the response, for ever.
        writer.transport.set_write_buffer_limits(0)
        is_answered = False
        try:
            with suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(client_seconds):
                    head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_build_response(head, pages))
                await _drain(writer, progress, client_seconds)
                is_answered = True
        finally:
            connected.pop(writer, None)
            if is_answered:
                writer.close()
            else:
                writer.transport.abort()

    try:
        server = await asyncio.start_server(answer, host.strip("[]"), int(port), limit=_MAX_BYTES)
    except (OSError, ValueError) as error:
        raise TrimtabError(
            f"address {address}: cannot listen there: {error}; choose another address"
        ) from None
    async with server:
        yield int(server.sockets[0].getsockname()[1])


async def _drain(writer: asyncio.StreamWriter, progress: ClientProgress, seconds: float) -> None:
    """Send what was written; raises `TimeoutError` when the client reads nothing for so long."""
    while True:
        progress.measure_idle()
        try:
            async with asyncio.timeout(seconds):
                return await writer.drain()
        except TimeoutError:
            if progress.measure_idle() >= seconds:
                raise


def build_health_page(checks: dict[str, Callable[[], str]]) -> PageHandler:
    """Build a page that lists failing checks with their reasons, like the API server's."""

    def page() -> tuple[int, bytes]:
        found = {name: check() for name, check in checks.items()}
        lines = [f"[-] {name}: {reason}" if reason else f"[+] {name}" for name, reason in found.items()]
        failed = any(found.values())
        return 503 if failed else 200, "\n".join([*lines, "not ok" if failed else "ok", ""]).encode()

    return page


def _build_response(head: bytes, pages: dict[str, PageHandler]) -> bytes:
    method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    page = pages.get(target.partition("?")[0])
    if method != "GET":
        status, body = 405, b"only GET\n"
    elif page is None:
        status, body = 404, b"no such page\n"
    else:
        status, body = page()
    lines = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        "Content-Type: text/plain; version=0.0.4; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body
