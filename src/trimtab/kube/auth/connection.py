"""The resolved connection to one API server: address, trust, proxy and credentials.

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

from collections.abc import Mapping
from dataclasses import dataclass, field
from ssl import SSLContext

from multidict import CIMultiDict, CIMultiDictProxy

from trimtab.kube.auth.credentials import ClientCredential, CredentialProvider
from trimtab.kube.auth.tls import Trust


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
