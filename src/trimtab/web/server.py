"""Serve the dashboard for the duration of a context; signals are left to the surrounding process."""

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
"""The seconds after which the certificate files are read again."""
_GRACE = 1
"""The seconds that running responses get at shutdown; event streams never end by themselves."""


@dataclass(frozen=True, slots=True)
class DashboardCertificate:
    """The PEM files of a certificate and its key."""

    certificate: Path
    key: Path

    def read(self) -> KeyPair:
        """Read the current files; raises unless certificate and key match."""
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
    """Return whether only this machine can reach the address."""
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
    """Serve at this address and yield the URL; port 0 picks a free port."""
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
            f"address {address}: cannot listen there: {error.strerror or error}; choose another address"
        ) from None
    # Connections inherit TCP_NODELAY. asyncio sets it only on sockets with proto IPPROTO_TCP; this one has 0.
    # Without it each response, written in two pieces, waits 40 ms for a delayed acknowledgement.
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
                certificate.read()  # its error names the file
            config.load()
        except OSError as error:  # ssl.SSLError is an OSError too
            where = error.filename or "--dashboard-certificate"
            raise TrimtabError(f"{where}: {error.strerror or error}") from None
        server = _Server(config)
        running = asyncio.create_task(server.serve(sockets=[found]))
        reload_task = None
        if certificate and config.ssl:
            reload_task = asyncio.create_task(
                _reload_certificate(config.ssl, certificate, every=reload_seconds)
            )
        try:
            await server.up.wait()
            shown = f"[{host}]" if host and ":" in host else host or socket.gethostname()
            yield f"{'https' if certificate else 'http'}://{shown}:{found.getsockname()[1]}"
        finally:
            if reload_task:
                reload_task.cancel()
            server.should_exit = True
            await running


async def _reload_certificate(
    shown: ssl.SSLContext, certificate: DashboardCertificate, *, every: float
) -> None:
    """Load the current files for new connections: a certificate may be renewed while the process runs."""
    while True:
        await asyncio.sleep(every)
        try:
            certificate.read().load_into(shown)
        except (OSError, ConfigError) as error:  # keep the old pair if the new one does not match
            log.warning("dashboard.certificate_reload_failed", error=str(error))
