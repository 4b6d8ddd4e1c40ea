"""A proxy in front of a real Prometheus that injects faults and records queries."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp
from aiohttp import web

Answer = Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]
"""Builds a response from a request and the body that Prometheus returned."""


@dataclass
class Faulty:
    """`async with Faulty(url) as server:`, then `server.next.append(misbehaviour)`."""

    behind: str
    prefix: str = ""
    """The path under which Prometheus is, as behind a proxy."""
    extra: dict[str, Any] = field(default_factory=dict)
    """Additional JSON responses by path."""
    next: deque[Answer] = field(default_factory=deque)
    """Faults for the next range queries, in order."""
    always: Answer | None = None
    asked: list[dict[str, str]] = field(default_factory=list)
    methods: set[str] = field(default_factory=set)
    headers: list[dict[str, str]] = field(default_factory=list)
    most_at_a_time: int = 0
    _now: int = 0

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path in self.extra:
            return web.json_response(self.extra[request.path])
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.methods.add(request.method)
        self.headers.append(dict(request.headers))
        path = request.path_qs.removeprefix(self.prefix)
        self._now += 1
        self.most_at_a_time = max(self._now, self.most_at_a_time)
        try:
            async with self._session.request(request.method, self.behind + path, data=form or None) as answer:
                body = await answer.read()
                if path == "/api/v1/query_range" and "count" not in form["query"]:
                    self.asked.append(form)
                    if fault := self.next.popleft() if self.next else self.always:
                        return await fault(request, body)
                return web.Response(body=body, status=answer.status, content_type="application/json")
        finally:
            self._now -= 1


def status(code: int, *, error: str = "", kind: str = "", **headers: str) -> Answer:
    async def answer(_: web.Request, __: bytes) -> web.StreamResponse:
        document = {"status": "error", "errorType": kind, "error": error}
        return web.json_response(document, status=code, headers=headers)

    return answer


def body(change: Callable[[bytes], bytes]) -> Answer:
    """Return 200 with a changed body."""

    async def answer(_: web.Request, given: bytes) -> web.StreamResponse:
        return web.Response(body=change(given), content_type="application/json")

    return answer


async def torn(request: web.Request, given: bytes) -> web.StreamResponse:
    """Abort the connection in the middle of the body."""
    response = web.StreamResponse()
    response.content_length = len(given)
    await response.prepare(request)
    await response.write(given[: len(given) // 2])
    assert request.transport
    request.transport.abort()
    return response


async def silent(_: web.Request, __: bytes) -> web.StreamResponse:
    """Never respond."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable")
