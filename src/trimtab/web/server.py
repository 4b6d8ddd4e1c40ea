"""Serve the dashboard for the duration of a context; signals are left to the surrounding process."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import structlog
from aiohttp import web

from trimtab.errors import TrimtabError
from trimtab.http_server import serve_application, split_address
from trimtab.kube.auth.tls import KeyPair
from trimtab.kube.errors import ConfigError

log = structlog.get_logger(__name__)

RELOAD_SECONDS = 60.0
"""The seconds after which the certificate files are read again."""
_GRACE = 1.0
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
    application: web.Application,
    address: str,
    *,
    certificate: DashboardCertificate | None = None,
    reload_seconds: float = RELOAD_SECONDS,
) -> AsyncIterator[str]:
    """Serve at this address and yield the URL; port 0 picks a free port."""
    host, _ = split_address(address)
    tls = _load_certificate(certificate) if certificate else None
    async with AsyncExitStack() as running:
        port = await running.enter_async_context(
            serve_application(
                application,
                address,
                tls=tls,
                grace_seconds=_GRACE,
                cancel_on_disconnect=True,  # else a closed page would count as an open stream until the next write
            )
        )
        if certificate and tls:
            reloading = asyncio.create_task(_reload_certificate(tls, certificate, every=reload_seconds))
            running.callback(reloading.cancel)
        shown = f"[{host}]" if host and ":" in host else host or socket.gethostname()
        yield f"{'https' if certificate else 'http'}://{shown}:{port}"


def _load_certificate(certificate: DashboardCertificate) -> ssl.SSLContext:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        certificate.read().load_into(tls)
    except OSError as error:  # ssl.SSLError is an OSError too
        where = error.filename or "--dashboard-certificate"
        raise TrimtabError(f"{where}: {error.strerror or error}") from None
    return tls


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
