"""A resolved way to one API server, which is all that the client needs to know of kubeconfigs and credentials.

Who we are may change while we run: tokens rotate, and exec plugins hand out new certificates. So a request asks
for the `identity` of the moment. Since aiohttp keeps connections by their SSL context, passing `identity.ssl`
with each request is enough: after a change of certificate new connections are made, and old ones idle out.

    identity = await connection.identity()
    ... session.request(
        method, connection.server + path, headers=identity.headers, ssl=identity.ssl,
        proxy=connection.proxy, proxy_headers=connection.proxy_headers, server_hostname=connection.server_hostname,
    )
    ... on 401: if await connection.renew(identity), try once more with the new identity
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ssl import SSLContext

from multidict import CIMultiDict, CIMultiDictProxy

from trimtab.kube.auth.credentials import ClientCredential, CredentialProvider
from trimtab.kube.auth.tls import Trust


@dataclass(frozen=True, eq=False)
class Identity:
    """Who a request says it comes from; the same object until something changed."""

    headers: CIMultiDictProxy[str] = field(repr=False)
    """Authorization and impersonation. A header may occur several times, so this must not become a dict."""

    ssl: SSLContext | bool
    """What aiohttp takes as `ssl`: the context with our certificate, or True where there is no TLS."""

    credential: ClientCredential = field(repr=False)


@dataclass(eq=False)
class Connection:
    """Where an API server is, whom we trust to be it, and who we are to it."""

    server: str
    """The URL, without a slash at its end; it may have a path, under which the API then is."""

    context: str
    """The name shown to people."""

    namespace: str
    """Where to look when no namespace is named."""

    credentials: CredentialProvider = field(repr=False)
    trust: Trust | None = field(repr=False)
    """None where the server is spoken to without TLS."""

    server_hostname: str | None = None
    """The name to expect in the server's certificate, where it is not the one in the URL."""

    proxy: str | None = None
    """An http:// or https:// proxy."""

    proxy_headers: Mapping[str, str] | None = field(default=None, repr=False)
    """What the proxy wants to be told: who we are to it."""

    impersonation: tuple[tuple[str, str], ...] = ()
    """The headers that make us act as somebody else."""

    _identity: Identity | None = field(default=None, init=False, repr=False)

    async def get_identity(self) -> Identity:
        """Who we are now; cheap while nothing changes."""
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
        """The server did not believe this identity (401): True when trying again with a new one makes sense."""
        return await self.credentials.renew(rejected.credential)
