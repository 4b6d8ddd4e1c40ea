"""The dashboard on its address, for as long as a block lasts; it leaves signals to the process that it is in."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import structlog
import uvicorn
from starlette.types import ASGIApp

from trimtab.errors import TrimtabError
from trimtab.kube.auth.tls import KeyPair
from trimtab.kube.errors import ConfigError
from trimtab.operator.config.types import split_address

log = structlog.get_logger(__name__)

RELOAD_SECONDS = 60.0
"""Seconds after which the files of a certificate are read again."""
_GRACE = 1
"""Seconds that answers under way have at the end; streams never end by themselves."""


@dataclass(frozen=True, slots=True)
class DashboardCertificate:
    """The files of a certificate and its key, PEM."""

    certificate: Path
    key: Path

    def read(self) -> KeyPair:
        """What the files hold now, once it is known to fit together."""
        where = str(self.certificate), str(self.key)
        return KeyPair.read(self.certificate.read_bytes(), self.key.read_bytes(), where=where)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return contextlib.nullcontext()


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach it."""
    host, _ = split_address(address)
    if host is None:
        return False
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@asynccontextmanager
async def serve_dashboard(
    application: ASGIApp,
    address: str,
    *,
    certificate: DashboardCertificate | None = None,
    reload_seconds: float = RELOAD_SECONDS,
) -> AsyncIterator[str]:
    """Serve at this address; what is given is the URL, with the port that was found where any (0) was asked for."""
    host, port = split_address(address)
    try:
        everywhere = host is None and socket.has_dualstack_ipv6()
        found = socket.create_server(
            (host or "", port),
            family=socket.AF_INET6 if everywhere or ":" in (host or "") else socket.AF_INET,
            backlog=128,
            dualstack_ipv6=everywhere,
        )
    except OSError as error:
        raise TrimtabError(
            f"address {address}: cannot be listened on: {error.strerror or error}; name another"
        ) from None
    # Connections inherit it. asyncio sets it only on sockets that say they are TCP, which this one's do not; without it
    # each answer, written in two pieces, waits 40 ms for a delayed acknowledgement.
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with found:
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=_GRACE,
            ssl_certfile=certificate.certificate if certificate else None,
            ssl_keyfile=certificate.key if certificate else None,
        )
        try:
            if certificate:
                certificate.read()  # which says of which file it complains
            config.load()
        except OSError as error:  # what OpenSSL has to say of a certificate is one too
            where = error.filename or "--dashboard-certificate"
            raise TrimtabError(f"{where}: {error.strerror or error}") from None
        server = _Server(config)
        running = asyncio.create_task(server.serve(sockets=[found]))
        renewing = None
        if certificate and config.ssl:
            renewing = asyncio.create_task(_reload_certificate(config.ssl, certificate, every=reload_seconds))
        try:
            await server.up.wait()
            shown = f"[{host}]" if host and ":" in host else host or socket.gethostname()
            yield f"{'https' if certificate else 'http'}://{shown}:{found.getsockname()[1]}"
        finally:
            if renewing:
                renewing.cancel()
            server.should_exit = True
            await running


async def _reload_certificate(
    shown: ssl.SSLContext, certificate: DashboardCertificate, *, every: float
) -> None:
    """Show new connections what is in the files now: a certificate is renewed long before the process ends."""
    while True:
        await asyncio.sleep(every)
        try:
            certificate.read().load_into(shown)
        except (OSError, ConfigError) as error:  # of a pair that does not fit, nothing is taken over
            log.warning("dashboard.certificate_not_renewed", error=str(error))
