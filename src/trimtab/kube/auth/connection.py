"""The connection to one API server: address, trust, proxy and credentials, resolved from the kubeconfig or from the service
account of the pod that this process runs in.

The rules are those of kubectl: a kubeconfig takes precedence, also inside a pod; the service account is used if no
kubeconfig names a context. A file that the user named is never silently replaced by another source. Credentials are
sent over TLS only: requests to an http:// server, such as `kubectl proxy`, are anonymous. Unlike kubectl, this module
never prompts for a password, and reports what kubectl ignores (a user that does not exist, a server without a scheme)
as an error.

Credentials change while the process runs: tokens rotate, and exec plugins issue new certificates. So each request asks
for the current identity. Since aiohttp pools connections by SSL context, passing `identity.ssl`
with each request is enough: after a certificate change, new connections are opened and old ones idle out.

    identity = await connection.get_identity()
    ... session.request(
        method, connection.server + path, headers=identity.headers, ssl=identity.ssl,
        proxy=connection.proxy, proxy_headers=connection.proxy_headers, server_hostname=connection.server_hostname,
    )
    ... on 401: if await connection.renew(identity), retry once with the new identity
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext

from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from trimtab.kube.auth.credential_sources import FileCredentialSource
from trimtab.kube.auth.credentials import ClientCredential, CredentialProvider, LocalCredentialProvider
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


@dataclass(frozen=True, eq=False)
class Identity:
    """The credentials that one request uses; the same object is reused until something changes."""

    headers: CIMultiDictProxy[str] = field(repr=False)
    """The Authorization and impersonation headers; one header may occur several times, so this must not become a
    dict."""

    ssl: SSLContext | bool
    """The value for aiohttp's `ssl` argument: a context with the client certificate, or True without TLS."""

    credential: ClientCredential = field(repr=False)


@dataclass(eq=False)
class Connection:
    """The address of an API server, the trust in it, and the credentials for it."""

    server: str
    """The URL without a trailing slash; it may have a path, below which the API is served."""

    context: str
    """The name of the context, as shown to users."""

    namespace: str
    """The namespace to use if the user names none."""

    credentials: CredentialProvider = field(repr=False)
    trust: Trust | None = field(repr=False)
    """The TLS trust, or None if the server is reached without TLS."""

    server_hostname: str | None = None
    """The name expected in the server's certificate if it differs from the host of the URL."""

    proxy: str | None = None
    """The URL of an http:// or https:// proxy."""

    proxy_headers: Mapping[str, str] | None = field(default=None, repr=False)
    """The headers that authenticate requests to the proxy."""

    impersonation: tuple[tuple[str, str], ...] = ()
    """The impersonation headers, as pairs because a header may occur several times."""

    _identity: Identity | None = field(default=None, init=False, repr=False)

    async def get_identity(self) -> Identity:
        """Return the current identity; cheap while nothing changes."""
        proof = await self.credentials.get_credential()
        context: SSLContext | bool = self.trust.get_context(proof.certificate) if self.trust else True
        identity = self._identity
        if identity is None or identity.credential is not proof or identity.ssl is not context:
            headers = CIMultiDict(self.impersonation)
            if proof.authorization:
                headers["Authorization"] = proof.authorization.reveal()
            identity = self._identity = Identity(CIMultiDictProxy(headers), context, proof)
        return identity

    async def renew(self, rejected: Identity) -> bool:
        """Renew the identity that the server rejected with 401; return True if a retry makes sense."""
        return await self.credentials.renew(rejected.credential)


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
    # A kubeconfig comes before the service account, as in kubectl: in a pod, a person means the cluster that it
    # names.
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
        # Without TLS, everyone on the way could read the token.
        credentials=build_credentials(user, cluster, environ=environ)
        if secure
        else LocalCredentialProvider(),
        trust=build_trust(cluster) if secure else None,
        server_hostname=(cluster.value.tls_server_name or None) if secure else None,
        proxy=proxy.url if proxy else None,
        proxy_headers=proxy.headers if proxy else None,
        impersonation=build_impersonation_headers(user),
    )
