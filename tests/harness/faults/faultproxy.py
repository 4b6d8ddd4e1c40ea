"""Proxy an API server and inject the faults that a test plans.

It ends the client's TLS and opens its own to the server, so it can break an answer anywhere: before it, within
it, between two events of a watch. It adds nothing else: whatever it lets through is the server's own. Who comes
with a client certificate is not known behind it; tokens pass.
"""

import ssl
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from aiohttp import web

from harness.builders.certificates import LOOPBACK
from harness.cluster.port import ApiServer
from harness.faults.faults import Asked, Fault, FaultPlan, Kind
from harness.faults.relay import Relay
from harness.process import free_port


@dataclass
class _Script:
    fault: Fault
    count: int
    match: Callable[[Asked], bool]


class FaultProxy:
    """`async with FaultProxy(cluster) as proxy:`, then let a client use `proxy.kubeconfig`."""

    def __init__(self, cluster: ApiServer, *, plan: FaultPlan | None = None) -> None:
        self.plan = plan
        """Random faults from now on; None for none."""
        self.asked: deque[Asked] = deque(maxlen=10_000)
        """The latest requests that came, also those that failed."""
        self._port = free_port()
        self.server = f"https://127.0.0.1:{self._port}"
        self.kubeconfig = cluster.directory / f"kubeconfig-proxy-{self._port}"
        cluster.credentials.write_kubeconfig(self.kubeconfig, server=self.server)
        own = cluster.credentials.authority.issue("fault-proxy", hosts=LOOPBACK)
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(own.cert, own.key)
        self._scripts: list[_Script] = []
        self._relay = Relay(cluster.server, ca=cluster.ca)
        self._server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(self._server, shutdown_timeout=0.1)

    @property
    def injected(self) -> Counter[str]:
        """Return the count of each fault by name, and of each status by its number."""
        return self._relay.injected

    @property
    def answered(self) -> deque[tuple[Asked, int]]:
        """The latest requests that reached the server, each with the status that it answered."""
        return self._relay.answered

    def fail_next(
        self, fault: Fault, *, count: int = 1, match: Callable[[Asked], bool] = lambda _: True
    ) -> None:
        """Let the next requests that match meet this fault. Scripts go before the plan, in the order given."""
        self._scripts.append(_Script(fault, count, match))

    def forbid(self, path: str) -> Callable[[], None]:
        """Reject every request to a path with this suffix until the returned function is called."""
        refused = Fault(kind=Kind.STATUS, status=403)
        script = _Script(refused, sys.maxsize, lambda asked: asked.path.endswith(path))
        self._scripts.append(script)
        return lambda: self._scripts.remove(script)

    def strike(self, fault: Fault, *, match: Callable[[Asked], bool] = lambda _: True) -> int:
        """Let this befall the watches that are open now, and say how many they were."""
        return self._relay.strike(fault, match)

    def swallow(self, text: bytes) -> Callable[[], None]:
        """Lose the events of watches that contain this, and nothing else, until what is returned is called."""
        self._relay.swallowed.add(text)
        return lambda: self._relay.swallowed.remove(text)

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

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lose_connections()
        await self._runner.cleanup()
        await self._relay.close()

    async def _listen(self) -> None:
        self._site = web.TCPSite(
            self._runner, "127.0.0.1", self._port, ssl_context=self._tls, reuse_address=True
        )
        await self._site.start()

    def _lose_connections(self) -> None:
        for connection in self._server.connections:
            if connection.transport:
                connection.transport.abort()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        asked = Asked(request.method, request.path, dict(request.query))
        self.asked.append(asked)
        return await self._relay.answer(request, asked, self._choose(asked))

    def _choose(self, asked: Asked) -> Fault | None:
        for script in self._scripts:
            if script.count and script.fault.fits(asked) and script.match(asked):
                script.count -= 1
                return script.fault
        return self.plan.pick(asked) if self.plan else None
