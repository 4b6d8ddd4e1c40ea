"""The webhook of one process: serve it, and keep its certificate and its registration current.

Every cycle determines the valid certificate, then makes the API server trust it, and only then serves it. A replacement
is served one cycle later, when every API server trusts it; until then the old one, which is still trusted, is served.
Every replica does this by itself and reaches the same result.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Never, Protocol

import structlog
from aiohttp import web

from trimtab.http_server import serve_application
from trimtab.kube.auth.tls import KeyPair
from trimtab.kube.errors import KubeError, describe
from trimtab.kube.rest.client import Client
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.metrics import Metrics
from trimtab.operator.webhook.certificates import FileCertificate, SecretCertificate, ServingCertificate
from trimtab.operator.webhook.registration import REMOVE_COMMAND, WebhookRegistration
from trimtab.timing import LogOnce

log = structlog.get_logger(__name__)

_RECONCILE_INTERVAL = 30.0
_UNREGISTER_TIMEOUT = 5.0
"""The seconds that a stopping process waits for the API server to remove its webhook."""


class CertificateSource(Protocol):
    """A source of the certificate."""

    async def current(self) -> ServingCertificate: ...


class WebhookLifecycle:
    """A webhook at its address; `serve` it for the duration of a block, and `run` it as a task inside."""

    def __init__(
        self,
        client: Client,
        config: OperatorConfig,
        *,
        now: Callable[[], datetime],
        metrics: Metrics | None = None,
    ) -> None:
        self._now = now
        self._enabled = config.webhook.enabled
        self._address = config.webhook.address
        self._metrics = metrics or Metrics()
        self._registration = WebhookRegistration(client, config.webhook, config.namespace)
        self._certificate: CertificateSource
        if config.webhook.certificate_files:
            self._certificate = FileCertificate(config.webhook.certificate_files)
            self._renewal = "renew the files of webhook.certificateFiles"
        else:
            self._renewal = (
                f"allow the operator to update the Secret {config.webhook.secret}, or delete the Secret"
            )
            self._certificate = SecretCertificate(
                client,
                namespace=config.namespace,
                secret=config.webhook.secret,
                names=self._registration.names,
                validity=timedelta(seconds=config.webhook.certificate_validity.seconds),
                now=now,
            )
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._served: ServingCertificate | None = None
        self._expires = datetime.max.replace(tzinfo=UTC)
        """The expiry of the served certificate, or of its CA."""
        self._errors, self._expiry = LogOnce(), LogOnce()

    def readiness_error(self) -> str:
        """Return the reason why the webhook cannot answer; empty if it can. A readiness check."""
        if not self._enabled:
            return ""
        if self._served is None:
            return self._errors.current() or "the webhook has no certificate yet"
        if not self._is_expired():
            return ""
        why = f" ({error})" if (error := self._errors.current()) else ""
        return (
            f"the certificate expired on {self._expires:%Y-%m-%d %H:%M} UTC{why}, so the API server rejects the webhook;"
            f" {self._renewal}"
        )

    def _is_expired(self) -> bool:
        return self._expires <= self._now()

    @asynccontextmanager
    async def serve(self, application: web.Application) -> AsyncIterator[int]:
        """Serve over TLS; yield port 0 without listening if the webhook is disabled."""
        if not self._enabled:
            yield 0
            return
        async with serve_application(application, self._address, tls=self._tls) as port:
            yield port

    async def run(self, *, interval: float = _RECONCILE_INTERVAL) -> Never:
        """Keep certificate and registration current until cancelled."""
        while True:
            try:
                await self.reconcile()
                self._errors.clear()
            except KubeError as error:
                if self._errors.is_new(describe(error)):  # a rejected request may stay rejected for ever
                    log.warning("webhook.reconcile_failed", error=describe(error))
            if not self._is_expired():
                self._expiry.clear()
            elif self._expiry.is_new("expired"):
                log.error("webhook.certificate_expired", reason=self.readiness_error())
            await asyncio.sleep(interval if self._served or not self._enabled else min(interval, 1.0))

    async def unregister(self) -> None:
        """Remove the registration from the API server, within a few seconds."""
        try:
            async with asyncio.timeout(_UNREGISTER_TIMEOUT):
                await self._registration.unregister()
        except (KubeError, TimeoutError) as error:
            reason = (
                describe(error) if isinstance(error, KubeError) else "the API server did not answer in time"
            )
            log.warning("webhook.still_registered", reason=reason, fix=REMOVE_COMMAND)

    async def reconcile(self) -> None:
        """Update certificate, registration and server once; remove the registration if the webhook is disabled."""
        if not self._enabled:
            await self._registration.disable()
            return
        pair = await self._certificate.current()
        usable = KeyPair.read(pair.certificate, pair.key, where=("webhook certificate", "webhook key"))
        was_trusted = await self._registration.publish(pair.authority, now=self._now())
        # A certificate that nobody trusts any more is not worth another cycle.
        if pair != self._served and (was_trusted or self._served is None or self._is_expired()):
            usable.load_into(self._tls)
            self._served = pair
            self._expires = min(usable.expires_at, pair.trusted_until())
            self._metrics.webhook_certificate_expiry.set(self._expires.timestamp())
            log.info("webhook.certificate_served", expires=self._expires.isoformat())
