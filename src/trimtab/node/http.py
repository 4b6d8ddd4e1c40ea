"""Three paths by HTTP, for a probe and a Prometheus: /metrics, /healthz and /readyz.

A few lines over asyncio: a whole web server would be a sixteenth of the agent's memory. One request a connection, and
whoever dawdles is hung up on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from trimtab.errors import TrimtabError

PageHandler = Callable[[], tuple[int, bytes]]
"""The status and the text of an answer."""

_REQUEST_TIMEOUT = 5.0
_MAX_BYTES = 8192
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


@asynccontextmanager
async def serve_http(address: str, pages: dict[str, PageHandler]) -> AsyncIterator[int]:
    """Serve these paths at an address `HOST:PORT`; what is given is the port, for where any free one (0) was asked for."""
    host, _, port = address.rpartition(":")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(
            OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
        ):
            async with asyncio.timeout(_REQUEST_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_build_response(head, pages))
                await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(answer, host.strip("[]"), int(port), limit=_MAX_BYTES)
    except (OSError, ValueError) as error:
        raise TrimtabError(f"address {address}: cannot be listened on: {error}; name another") from None
    async with server:
        yield int(server.sockets[0].getsockname()[1])


def build_health_page(checks: dict[str, Callable[[], str]]) -> PageHandler:
    """A page that names what fails and why, as the API server's own do."""

    def page() -> tuple[int, bytes]:
        found = {name: check() for name, check in checks.items()}
        lines = [f"[-] {name}: {why}" if why else f"[+] {name}" for name, why in found.items()]
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
