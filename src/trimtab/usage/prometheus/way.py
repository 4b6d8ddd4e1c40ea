"""The way to a PromQL server: at the address given, or to the best that a cluster's Services offer.

From inside a cluster a Service is reached directly. From outside the API server passes requests on, with our own
credentials for it; it passes on none for the server behind it.
"""

from __future__ import annotations

import os

from trimtab.kube.auth import Connection
from trimtab.kube.auth.credentials import AtHand, basic
from trimtab.kube.auth.material import Kept
from trimtab.kube.auth.secret import Secret
from trimtab.kube.auth.tls import Trust
from trimtab.kube.client import Client
from trimtab.usage.discovery import find_promql_servers
from trimtab.usage.errors import SourceRefused
from trimtab.usage.prometheus.settings import PrometheusSettings


async def way_to(settings: PrometheusSettings, client: Client | None) -> tuple[Connection, str]:
    """A connection, and the path on it under which /api/v1 is."""
    if settings.url:
        return _direct(settings.url, settings), ""
    if client is None:
        raise SourceRefused("no address and no cluster to find a PromQL server in; set url")
    found = await find_promql_servers(client)
    if not found:
        raise SourceRefused(
            "no Prometheus, Thanos, Mimir or VictoriaMetrics found by its Service labels; set url"
        )
    if settings.reach == "direct" or (settings.reach == "auto" and "KUBERNETES_SERVICE_HOST" in os.environ):
        return _direct(found[0].url, settings), ""
    if settings.token_file or settings.username or settings.cert_file:
        raise SourceRefused(
            "the API server's proxy does not pass credentials on; set url, to reach the server directly"
        )
    return client.connection, found[0].proxied


def _direct(url: str, settings: PrometheusSettings) -> Connection:
    """The way to a server at an address, with the credentials of the settings."""
    token = Kept(settings.token_file, where="token_file") if settings.token_file else None
    certificate = None
    if settings.cert_file and settings.key_file:
        certificate = (
            Kept(settings.cert_file, where="cert_file"),
            Kept(settings.key_file, where="key_file"),
        )
    secret = None
    if settings.username is not None and settings.password_file:
        password = Kept(settings.password_file, where="password_file").read().decode().strip("\r\n")
        secret = basic(settings.username, Secret(password))
    trust = None
    if url.startswith("https:"):
        authority = Kept(settings.ca_file, where="ca_file") if settings.ca_file else None
        trust = Trust(authority, insecure=settings.insecure)
    return Connection(
        server=url,
        context=url,
        namespace="",
        credentials=AtHand(token=token, basic=secret, certificate=certificate),
        trust=trust,
    )
