"""Pass requests on to the API server and apply a fault to them; `faultproxy` uses it."""

import asyncio
import json
import ssl
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from harness.faults.faults import Asked, Fault, Kind, failure

# These concern one connection, and here there are two.
_HOP_BY_HOP = {"connection", "host", "keep-alive", "transfer-encoding", "upgrade", "content-length"}


@dataclass
class _Watch:
    asked: Asked
    struck: asyncio.Future[Fault] = field(default_factory=asyncio.Future)


class Relay:
    """One server to pass requests on to, the watches that are open there, and the faults that happened."""

    def __init__(self, server: str, *, ca: Path) -> None:
        self.injected: Counter[str] = Counter()
        self.answered: deque[tuple[Asked, int]] = deque(maxlen=10_000)
        self.swallowed: set[bytes] = set()
        """Events of watches that contain one of these are not passed on."""
        self._server = server
        self._watches: list[_Watch] = []
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=ca), limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )

    async def close(self) -> None:
        await self._session.close()

    def strike(self, fault: Fault, match: Callable[[Asked], bool]) -> int:
        """Let this befall the open watches that match, and say how many they were."""
        struck = [watch for watch in self._watches if match(watch.asked) and not watch.struck.done()]
        for watch in struck:
            watch.struck.set_result(fault)
        return len(struck)

    async def answer(self, request: web.BaseRequest, asked: Asked, fault: Fault | None) -> web.StreamResponse:
        """The server's answer, if it is to have one."""
        match fault:
            case Fault(kind=Kind.DROP):
                return self._lost(request, fault)
            case Fault(kind=Kind.STATUS):
                return self._refused(fault)
            case Fault(kind=Kind.GARBLE):
                self.injected[fault.name] += 1
                return web.Response(text="<html>We are back soon</html>", content_type="text/html")
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
        target = URL(self._server + request.raw_path, encoded=True)
        async with self._session.request(
            request.method,
            target,
            headers=_end_to_end(request.headers),
            data=body or None,
            allow_redirects=False,
        ) as answer:
            self.answered.append((asked, answer.status))
            if fault and fault.kind is Kind.LOSE_ANSWER:
                await answer.read()
                return self._lost(request, fault)
            if asked.is_watch and answer.status == 200:
                return await self._watch(request, _Watch(asked), answer, fault)
            return await self._whole(request, answer, fault)

    async def _whole(
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
        passing = asyncio.create_task(_pass_events(answer, response, fault, self.swallowed))
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
    answer: aiohttp.ClientResponse,
    response: web.StreamResponse,
    fault: Fault | None,
    swallowed: Collection[bytes],
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
            if any(text in event for text in swallowed):
                continue
            await response.write(event + b"\n")
            passed += 1
        if fault and passed == fault.after and not tears:
            return fault
        chunk = await answer.content.readany()
        if not chunk:
            return None
        pending += chunk
