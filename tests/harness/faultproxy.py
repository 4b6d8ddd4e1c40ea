"""A proxy before the real API server that makes things go wrong when a test wants them to.

It ends the client's TLS and opens its own to the server, so it can break an answer anywhere: before it, within
it, between two events of a watch. It adds nothing else: whatever it lets through is the server's own. Who comes
with a client certificate is not known behind it; tokens pass.
"""

import asyncio
import json
import ssl
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from harness.certificates import LOOPBACK
from harness.cluster import Cluster
from harness.faults import Asked, Fault, FaultPlan, Kind, failure
from harness.process import free_port

# These concern one connection, and here there are two.
_HOP_BY_HOP = {"connection", "host", "keep-alive", "transfer-encoding", "upgrade", "content-length"}


@dataclass
class _Script:
    fault: Fault
    count: int
    match: Callable[[Asked], bool]


@dataclass
class _Watch:
    asked: Asked
    struck: asyncio.Future[Fault] = field(default_factory=asyncio.Future)


class FaultProxy:
    """`async with FaultProxy(cluster) as proxy:`, then let a client use `proxy.kubeconfig`."""

    def __init__(self, cluster: Cluster, *, plan: FaultPlan | None = None) -> None:
        self.plan = plan
        self.injected: Counter[str] = Counter()
        """How often each fault happened, by name; a status by its number."""
        self.asked: deque[Asked] = deque(maxlen=10_000)
        """The latest requests that came, also those that failed."""
        self._cluster = cluster
        self._port = free_port()
        self._scripts: list[_Script] = []
        self._watches: list[_Watch] = []
        self._runner = web.ServerRunner(
            web.Server(self._handle, handler_cancellation=True, access_log=None), shutdown_timeout=0.1
        )
        self.kubeconfig: Path = cluster.directory / f"kubeconfig-proxy-{self._port}"
        cluster.credentials.write_kubeconfig(self.kubeconfig, server=self.server)

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    def fail_next(
        self, fault: Fault, *, count: int = 1, match: Callable[[Asked], bool] = lambda _: True
    ) -> None:
        """Let the next requests that match meet this fault. Scripts go before the plan, in the order given."""
        self._scripts.append(_Script(fault, count, match))

    def strike(self, fault: Fault, *, match: Callable[[Asked], bool] = lambda _: True) -> int:
        """Let this befall the watches that are open now, and say how many they were."""
        struck = [watch for watch in self._watches if match(watch.asked) and not watch.struck.done()]
        for watch in struck:
            watch.struck.set_result(fault)
        return len(struck)

    @asynccontextmanager
    async def refusing(self) -> AsyncIterator[None]:
        """Be down meanwhile: every connection is lost and none is accepted."""
        await self._site.stop()
        self._lose_connections()
        self.injected["refuse"] += 1
        try:
            yield
        finally:
            await self._listen()

    async def start(self) -> None:
        trust = ssl.create_default_context(cafile=self._cluster.ca)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trust, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        await self._runner.setup()
        await self._listen()

    async def stop(self) -> None:
        self._lose_connections()
        await self._runner.cleanup()
        await self._session.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _listen(self) -> None:
        own = self._cluster.credentials.authority.issue("fault-proxy", hosts=LOOPBACK)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(own.cert, own.key)
        self._site = web.TCPSite(
            self._runner, "127.0.0.1", self._port, ssl_context=context, reuse_address=True
        )
        await self._site.start()

    def _lose_connections(self) -> None:
        server = self._runner.server
        assert server is not None
        for connection in server.connections:
            if connection.transport:
                connection.transport.abort()

    def _choose(self, asked: Asked) -> Fault | None:
        for script in self._scripts:
            if script.count and script.fault.fits(asked) and script.match(asked):
                script.count -= 1
                return script.fault
        return self.plan.pick(asked) if self.plan else None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        asked = Asked(request.method, request.path, dict(request.query))
        self.asked.append(asked)
        fault = self._choose(asked)
        match fault:
            case Fault(kind=Kind.DROP):
                return self._lost(request, fault)
            case Fault(kind=Kind.STATUS):
                return self._refused(fault)
            case Fault(kind=Kind.DELAY):
                self.injected[fault.name] += 1
                await asyncio.sleep(fault.seconds)
                fault = None  # nothing else is wrong with this one
        try:
            return await self._forward(request, asked, fault)
        except aiohttp.ClientError:  # the server itself is away: so is its proxy
            return _abort(request)

    async def _forward(
        self, request: web.BaseRequest, asked: Asked, fault: Fault | None
    ) -> web.StreamResponse:
        body = await request.content.read()
        target = URL(self._cluster.server + request.raw_path, encoded=True)
        async with self._session.request(
            request.method,
            target,
            headers=_end_to_end(request.headers),
            data=body or None,
            allow_redirects=False,
        ) as answer:
            if fault and fault.kind is Kind.LOSE_ANSWER:
                await answer.read()
                return self._lost(request, fault)
            if asked.is_watch and answer.status == 200:
                return await self._watch(request, _Watch(asked), answer, fault)
            return await self._answer(request, answer, fault)

    async def _answer(
        self, request: web.BaseRequest, answer: aiohttp.ClientResponse, fault: Fault | None
    ) -> web.StreamResponse:
        """A whole answer, which may stop half-way, trickle or never come."""
        content = await answer.read()
        kind = fault.kind if fault else None
        if fault and kind is Kind.SILENCE:
            await self._say_nothing(fault)
        response = _like(answer)
        response.content_length = len(content)
        await response.prepare(request)
        if fault and kind is Kind.TEAR:
            await response.write(content[: len(content) // 2])
            return self._lost(request, fault)
        if fault and kind is Kind.SLOW:
            self.injected[fault.name] += 1
            piece = len(content) // 10 + 1
            for start in range(0, len(content), piece):
                await asyncio.sleep(fault.seconds / 10)
                await response.write(content[start : start + piece])
        else:
            await response.write(content)
        await response.write_eof()
        return response

    async def _watch(
        self, request: web.BaseRequest, watch: _Watch, answer: aiohttp.ClientResponse, fault: Fault | None
    ) -> web.StreamResponse:
        """A watch, let through event by event until its fault comes due or it is struck."""
        response = _like(answer)
        response.enable_chunked_encoding()
        await response.prepare(request)
        passing = asyncio.create_task(_pass_events(answer, response, fault))
        self._watches.append(watch)
        try:
            either: set[asyncio.Future[Any]] = {passing, watch.struck}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            due = watch.struck.result() if watch.struck.done() else await passing
        finally:
            self._watches.remove(watch)
            passing.cancel()
            if answer.connection and answer.connection.transport:
                answer.connection.transport.abort()  # a polite end of TLS would outlast the test
        return await self._end_watch(request, response, due)

    async def _end_watch(
        self, request: web.BaseRequest, response: web.StreamResponse, fault: Fault | None
    ) -> web.StreamResponse:
        match fault:
            case Fault(kind=Kind.SILENCE):
                await self._say_nothing(fault)
            case Fault(kind=Kind.CUT | Kind.TEAR):
                return self._lost(request, fault)
            case Fault(kind=Kind.GONE_EVENT):
                await response.write(json.dumps({"type": "ERROR", "object": failure(410)}).encode() + b"\n")
        if fault:
            self.injected[fault.name] += 1
        await response.write_eof()
        return response

    def _lost(self, request: web.BaseRequest, fault: Fault) -> web.StreamResponse:
        self.injected[fault.name] += 1
        return _abort(request)

    def _refused(self, fault: Fault) -> web.StreamResponse:
        self.injected[fault.name] += 1
        headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
        return web.json_response(failure(fault.status), status=fault.status, headers=headers)

    async def _say_nothing(self, fault: Fault) -> None:
        """Wait until the client has had enough: when it goes, the handler is cancelled."""
        self.injected[fault.name] += 1
        await asyncio.Event().wait()


def _abort(request: web.BaseRequest) -> web.StreamResponse:
    if request.transport:
        request.transport.abort()
    return web.Response()  # it has nowhere to go, but a handler returns one


def _like(answer: aiohttp.ClientResponse) -> web.StreamResponse:
    return web.StreamResponse(status=answer.status, reason=answer.reason, headers=_end_to_end(answer.headers))


def _end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _HOP_BY_HOP)


async def _pass_events(
    answer: aiohttp.ClientResponse, response: web.StreamResponse, fault: Fault | None
) -> Fault | None:
    """Pass on whole events; return the fault once as many were passed as it allows, or None at the end."""
    passed, pending = 0, b""
    tears = fault is not None and fault.kind is Kind.TEAR
    while True:
        *events, pending = pending.split(b"\n")
        for event in events:
            if fault and passed == fault.after:
                if tears:
                    await response.write(event[: len(event) // 2])
                return fault
            await response.write(event + b"\n")
            passed += 1
        if fault and passed == fault.after and not tears:
            return fault
        chunk = await answer.content.readany()
        if not chunk:
            return None
        pending += chunk
