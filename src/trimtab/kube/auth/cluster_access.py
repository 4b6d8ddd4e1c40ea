"""The way into a cluster: from a kubeconfig or from the pod that we run in, to a Connection.

As with kubectl, a kubeconfig wins where there is one, also inside a pod; the pod's service account is used when
no kubeconfig names any context. A file that the user asked for is never silently replaced by something else.

Also as with kubectl, credentials go over TLS only: to an http:// server, such as `kubectl proxy`, we are nobody.
Unlike kubectl we never ask for a password, and what it would pass over (a user that does not exist, a server
without a scheme) is an error here.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from yarl import URL

from trimtab.kube.auth.connection import Connection
from trimtab.kube.auth.credential_sources import Kept
from trimtab.kube.auth.credentials import AtHand
from trimtab.kube.auth.kubeconfig import Kubeconfig, read_kubeconfig, usual_paths
from trimtab.kube.auth.kubeconfig_entries import credentials_of, impersonation_of, server_of, trust_of
from trimtab.kube.auth.proxy import proxy_for
from trimtab.kube.auth.tls import Trust
from trimtab.kube.errors import ConfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def runs_in_pod(environ: Mapping[str, str] | None = None) -> bool:
    """Whether this process runs in a pod of a cluster, where Services and pods can be reached."""
    return "KUBERNETES_SERVICE_HOST" in (os.environ if environ is None else environ)


@dataclass(frozen=True)
class ContextSummary:
    """A context to choose from."""

    name: str
    cluster: str
    user: str
    namespace: str
    current: bool


def contexts(
    kubeconfig: str | Path | None = None, *, environ: Mapping[str, str] = os.environ
) -> list[ContextSummary]:
    """The contexts there are, by name."""
    config = read_kubeconfig(kubeconfig, environ=environ)
    return [
        ContextSummary(
            name=name,
            cluster=entry.value.cluster,
            user=entry.value.user,
            namespace=entry.value.namespace or "default",
            current=name == config.current,
        )
        for name, entry in sorted(config.contexts.items())
    ]


def load_connection(
    *,
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """The way to the cluster that the user means. Files are read and checked; nothing is sent, no plugin run."""
    config = read_kubeconfig(kubeconfig, environ=environ)
    if config.contexts or kubeconfig is not None:
        return _from_kubeconfig(config, context, environ=environ)
    looked = ", ".join(map(str, usual_paths(environ))) or "nowhere, as HOME is not set"
    if context is not None:
        raise ConfigError(f"no context {context!r}: no kubeconfig found (looked at {looked})")
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port.isdigit() or not (service_account / "token").is_file():
        raise ConfigError(
            f"no cluster to talk to: no kubeconfig found (looked at {looked}), and this is not a pod with a "
            "service account; name a kubeconfig, or set KUBECONFIG"
        )
    return _from_pod(host, int(port), account=service_account, environ=environ)


def _from_pod(host: str, port: int, *, account: Path, environ: Mapping[str, str]) -> Connection:
    server = URL.build(scheme="https", host=host, port=port)
    proxy = proxy_for(server, proxy_url="", where="", environ=environ)
    namespace = account / "namespace"
    return Connection(
        server=str(server),
        context="in-cluster",
        namespace=environ.get("POD_NAMESPACE")
        or (namespace.read_text().strip() if namespace.is_file() else "")
        or "default",
        credentials=AtHand(token=Kept(account / "token", where="service account token")),
        trust=Trust(Kept(account / "ca.crt", where="service account ca.crt")),
        proxy=proxy.url if proxy else None,
        proxy_headers=proxy.headers if proxy else None,
    )


def _from_kubeconfig(config: Kubeconfig, context: str | None, *, environ: Mapping[str, str]) -> Connection:
    name, chosen = config.choose(context)
    cluster, user = config.cluster_of(chosen), config.user_of(chosen)
    server = server_of(cluster)
    secure = server.scheme == "https"
    proxy_url = cluster.value.proxy_url.reveal()
    proxy = proxy_for(server, proxy_url=proxy_url, where=cluster.where(), environ=environ)
    return Connection(
        server=str(server).rstrip("/"),
        context=name,
        namespace=chosen.value.namespace or "default",
        credentials=credentials_of(user, cluster, environ=environ) if secure else AtHand(),
        trust=trust_of(cluster) if secure else None,
        server_hostname=(cluster.value.tls_server_name or None) if secure else None,
        proxy=proxy.url if proxy else None,
        proxy_headers=proxy.headers if proxy else None,
        impersonation=impersonation_of(user),
    )
