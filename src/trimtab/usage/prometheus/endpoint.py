"""The ways to a PromQL server: at the address given, or to those that a cluster's Services offer, the best first.

From inside a cluster a Service is reached directly. From outside the API server passes requests on, with our own
credentials for it; it passes on none for the server behind it.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace

from yarl import URL

from trimtab.kube.auth import Connection, runs_in_pod
from trimtab.kube.auth.credential_sources import Kept
from trimtab.kube.auth.credentials import AtHand
from trimtab.kube.auth.proxy import proxy_for
from trimtab.kube.auth.tls import Trust
from trimtab.kube.errors import KubeError, describe
from trimtab.kube.rest.client import Client
from trimtab.usage.discovery import find_promql_servers
from trimtab.usage.errors import SourceAway, SourceRefused
from trimtab.usage.prometheus.settings import PrometheusSettings

Way = tuple[Connection, str]
"""A connection, and the path on it under which /api/v1 is."""

_SERVICE = re.compile(r"[a-z0-9-]+|.+\.svc(\..+)?", re.IGNORECASE)
"""What a cluster's own DNS calls a Service, whatever the cluster's domain; NAME.NAMESPACE may be a host anywhere."""


async def ways_to(settings: PrometheusSettings, client: Client | None) -> list[Way]:
    """All that there are, and at least one."""
    try:
        if settings.url:
            return [(by_proxy(_direct(settings.url, settings)), "")]
        return await _found(settings, client)
    except KubeError as error:
        kind = SourceAway if error.transient else SourceRefused
        raise kind(describe(error)) from error


async def _found(settings: PrometheusSettings, client: Client | None) -> list[Way]:
    found = await find_promql_servers(client) if client else []
    if client is None or not found:
        raise SourceRefused(
            "no Prometheus, Thanos, Mimir or VictoriaMetrics found by the labels of a Service; "
            "set its url, or another provider such as metrics-server"
        )
    if settings.reach == "direct" or (settings.reach == "auto" and runs_in_pod()):
        return [(_direct(server.url, settings), "") for server in found]
    if settings.token_file or settings.username or settings.cert_file:
        raise SourceRefused(
            f"{found[0].url}: the API server's proxy passes no credentials on; set url to reach it directly"
        )
    return [(client.connection, server.proxied) for server in found]


def by_proxy(connection: Connection) -> Connection:
    """Through the proxy that the environment names, if any, as to the API server; never to a Service's name."""
    server = URL(connection.server)
    is_service = _SERVICE.fullmatch(server.host or "")
    proxy = None if is_service else proxy_for(server, proxy_url="", where="", environ=os.environ)
    return replace(connection, proxy=proxy.url, proxy_headers=proxy.headers) if proxy else connection


def _direct(url: str, settings: PrometheusSettings) -> Connection:
    """The way to a server at an address, with the credentials of the settings."""
    token = Kept(settings.token_file, where="token_file") if settings.token_file else None
    certificate = None
    if settings.cert_file and settings.key_file:
        certificate = (
            Kept(settings.cert_file, where="cert_file"),
            Kept(settings.key_file, where="key_file"),
        )
    password = None
    if settings.username is not None and settings.password_file:
        password = (settings.username, Kept(settings.password_file, where="password_file"))
    trust = None
    if url.startswith("https:"):
        authority = Kept(settings.ca_file, where="ca_file") if settings.ca_file else None
        trust = Trust(authority, insecure=settings.insecure)
    return Connection(
        server=url,
        context=url,
        namespace="",
        credentials=AtHand(token=token, password=password, certificate=certificate),
        trust=trust,
    )
