"""Find the endpoints of a PromQL server: the configured URL, or those of a cluster's Services, best first.

From inside a cluster a Service is reached directly. From outside, the API server forwards requests; it
authenticates Trimtab itself and passes no credentials on to the server behind it.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace

from yarl import URL

from trimtab.kube.auth import Connection, is_running_in_pod
from trimtab.kube.auth.credential_sources import FileCredentialSource
from trimtab.kube.auth.credentials import LocalCredentialProvider
from trimtab.kube.auth.proxy import select_proxy
from trimtab.kube.auth.tls import Trust
from trimtab.kube.errors import KubeError, describe
from trimtab.kube.rest.client import Client
from trimtab.usage.discovery import find_promql_servers
from trimtab.usage.errors import SourceRefused, SourceUnavailable
from trimtab.usage.prometheus.settings import PrometheusSettings

Endpoint = tuple[Connection, str]
"""A connection, and the path on it under which /api/v1 is."""

_SERVICE_HOST = re.compile(r"[a-z0-9-]+|.+\.svc(\..+)?", re.IGNORECASE)
"""The names of Services in a cluster's DNS, in any domain; NAME.NAMESPACE may be an outside host."""


async def find_endpoints(settings: PrometheusSettings, client: Client | None) -> list[Endpoint]:
    """Return all endpoints, at least one."""
    try:
        if settings.url:
            return [(with_environment_proxy(_build_connection(settings.url, settings)), "")]
        return await _discover_endpoints(settings, client)
    except KubeError as error:
        kind = SourceUnavailable if error.transient else SourceRefused
        raise kind(describe(error)) from error


async def _discover_endpoints(settings: PrometheusSettings, client: Client | None) -> list[Endpoint]:
    if given := _name_credentials(settings):
        # A Service's labels prove nothing about who answers there: credentials would go to whoever wrote them.
        raise SourceRefused(f"{given} is set without url, and is sent to a configured address only; set url")
    trusted = settings.discovery_namespaces
    found = await find_promql_servers(client, trusted) if client else []
    if client is None or not found:
        where = f" in the namespaces {', '.join(trusted)}" if trusted is not None else ""
        more = ", or add its namespace to discovery_namespaces" if trusted is not None else ""
        raise SourceRefused(
            f"no Service{where} has the labels of Prometheus, Thanos, Mimir or VictoriaMetrics; "
            f"set url{more}, or choose another provider such as metrics-server"
        )
    rivals = [server for server in found if server is not found[0] and server.is_ambiguous_with(found[0])]
    if trusted is not None and rivals:
        names = ", ".join(sorted(f"{server.namespace}/{server.service}" for server in (found[0], *rivals)))
        raise SourceRefused(
            f"several Services have the labels of a {found[0].flavour} server: {names}; "
            "set url to the one that stores the usage of this cluster"
        )
    if settings.reach == "direct" or (settings.reach == "auto" and is_running_in_pod()):
        return [(_build_connection(server.url, settings), "") for server in found]
    return [(client.connection, server.proxy_path) for server in found]


def _name_credentials(settings: PrometheusSettings) -> str:
    """Return the name of the setting that holds a credential, empty if none does."""
    names = ("token_file", "username", "username_file", "cloud_identity", "cert_file", "headers")
    return next((name for name in names if getattr(settings, name)), "")


def with_environment_proxy(connection: Connection) -> Connection:
    """Add the proxy that the environment configures, if any; a Service is always reached directly."""
    server = URL(connection.server)
    is_service = _SERVICE_HOST.fullmatch(server.host or "")
    proxy = None if is_service else select_proxy(server, proxy_url="", where="", environ=os.environ)
    return replace(connection, proxy=proxy.url, proxy_headers=proxy.headers) if proxy else connection


def _build_connection(url: str, settings: PrometheusSettings) -> Connection:
    """Build a connection to a URL with the credentials of the settings."""
    token = FileCredentialSource(settings.token_file, where="token_file") if settings.token_file else None
    certificate = None
    if settings.cert_file and settings.key_file:
        certificate = (
            FileCredentialSource(settings.cert_file, where="cert_file"),
            FileCredentialSource(settings.key_file, where="key_file"),
        )
    password = None
    user = (
        FileCredentialSource(settings.username_file, where="username_file")
        if settings.username_file
        else settings.username
    )
    if user is not None and settings.password_file:
        password = (user, FileCredentialSource(settings.password_file, where="password_file"))
    trust = None
    if url.startswith("https:"):
        authority = FileCredentialSource(settings.ca_file, where="ca_file") if settings.ca_file else None
        trust = Trust(authority, insecure=settings.insecure)
    return Connection(
        server=url,
        context=url,
        namespace="",
        credentials=LocalCredentialProvider(token=token, password=password, certificate=certificate),
        trust=trust,
    )
