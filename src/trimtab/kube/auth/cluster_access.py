"""Resolve the kubeconfig, or the service account of the pod that this process runs in, to a Connection.

The rules are those of kubectl: a kubeconfig takes precedence, also inside a pod; the service account is used if no
kubeconfig names a context. A file that the user named is never silently replaced by another source.

Credentials are sent over TLS only: requests to an http:// server, such as `kubectl proxy`, are anonymous. Unlike
kubectl, this module never prompts for a password, and reports what kubectl ignores (a user that does not exist, a
server without a scheme) as an error.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from yarl import URL

from trimtab.kube.auth.connection import Connection
from trimtab.kube.auth.credential_sources import FileCredentialSource
from trimtab.kube.auth.credentials import LocalCredentialProvider
from trimtab.kube.auth.kubeconfig import Kubeconfig, default_paths, read_kubeconfig
from trimtab.kube.auth.kubeconfig_entries import (
    build_credentials,
    build_impersonation_headers,
    build_trust,
    parse_server_url,
)
from trimtab.kube.auth.proxy import select_proxy
from trimtab.kube.auth.tls import Trust
from trimtab.kube.errors import ConfigError

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def is_running_in_pod(environ: Mapping[str, str] | None = None) -> bool:
    """Return True if this process runs in a pod, where Services and pods can be reached."""
    return "KUBERNETES_SERVICE_HOST" in (os.environ if environ is None else environ)


@dataclass(frozen=True)
class ContextSummary:
    """A context that the user can choose."""

    name: str
    cluster: str
    user: str
    namespace: str
    current: bool


def list_contexts(
    kubeconfig: str | Path | None = None, *, environ: Mapping[str, str] = os.environ
) -> list[ContextSummary]:
    """List the contexts of the kubeconfig, sorted by name."""
    config = read_kubeconfig(kubeconfig, environ=environ)
    return [
        ContextSummary(
            name=name,
            cluster=entry.value.cluster,
            user=entry.value.user,
            namespace=entry.value.namespace or "default",
            current=name == config.current_context,
        )
        for name, entry in sorted(config.contexts.items())
    ]


def load_connection(
    *,
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT_DIR,
) -> Connection:
    """Return the connection to the cluster that the user means. Files are read and checked; no request is sent and no
    plugin is run.
    """
    config = read_kubeconfig(kubeconfig, environ=environ)
    if config.contexts or kubeconfig is not None:
        return _connect_from_kubeconfig(config, context, environ=environ)
    searched = ", ".join(map(str, default_paths(environ))) or "nowhere, as HOME is not set"
    if context is not None:
        raise ConfigError(
            f"no context {context!r}: no kubeconfig found (searched: {searched}); name a kubeconfig, or set KUBECONFIG"
        )
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port.isdigit() or not (service_account / "token").is_file():
        raise ConfigError(
            f"no cluster is configured: no kubeconfig found (searched: {searched}), and this process does not run in a pod with a "
            "service account; name a kubeconfig, or set KUBECONFIG"
        )
    return _connect_from_pod(host, int(port), account=service_account, environ=environ)


def _connect_from_pod(host: str, port: int, *, account: Path, environ: Mapping[str, str]) -> Connection:
    server = URL.build(scheme="https", host=host, port=port)
    proxy = select_proxy(server, proxy_url="", where="", environ=environ)
    namespace = account / "namespace"
    return Connection(
        server=str(server),
        context="in-cluster",
        namespace=environ.get("POD_NAMESPACE")
        or (namespace.read_text().strip() if namespace.is_file() else "")
        or "default",
        credentials=LocalCredentialProvider(
            token=FileCredentialSource(account / "token", where="service account token")
        ),
        trust=Trust(FileCredentialSource(account / "ca.crt", where="service account ca.crt")),
        proxy=proxy.url if proxy else None,
        proxy_headers=proxy.headers if proxy else None,
    )


def _connect_from_kubeconfig(
    config: Kubeconfig, context: str | None, *, environ: Mapping[str, str]
) -> Connection:
    name, chosen = config.select_context(context)
    cluster, user = config.get_cluster(chosen), config.get_user(chosen)
    server = parse_server_url(cluster)
    secure = server.scheme == "https"
    proxy_url = cluster.value.proxy_url.reveal()
    proxy = select_proxy(server, proxy_url=proxy_url, where=cluster.where(), environ=environ)
    return Connection(
        server=str(server).rstrip("/"),
        context=name,
        namespace=chosen.value.namespace or "default",
        credentials=build_credentials(user, cluster, environ=environ)
        if secure
        else LocalCredentialProvider(),
        trust=build_trust(cluster) if secure else None,
        server_hostname=(cluster.value.tls_server_name or None) if secure else None,
        proxy=proxy.url if proxy else None,
        proxy_headers=proxy.headers if proxy else None,
        impersonation=build_impersonation_headers(user),
    )
