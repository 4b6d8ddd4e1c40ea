"""HTTP requests to one server: a connection pool, an identity, a proxy, and failures as errors of the caller's choice.

API servers, Prometheus, kubelets and custom usage sources are all reached through it. It never retries, except once
with a renewed token.
"""

from __future__ import annotations

import io
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Self

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from trimtab import __version__
from trimtab.errors import TrimtabError
from trimtab.kube.auth import Connection
from trimtab.kube.errors import describe

_CHUNK_BYTES = 1 << 20
_MAX_ERROR_BYTES = 1 << 20
"""The part of an error's body that is read, because a hostile server could send one without an end."""


class FailureKind(Enum):
    """The ways in which a request fails."""

    UNTRUSTED = "untrusted"
    """The server has no trusted certificate."""
    TLS_FAILED = "TLS failed"
    """The TLS handshake failed, such as with a server that does not use TLS."""
    NOT_CONNECTED = "not connected"
    """The server was not reached, so it has not seen the request."""
    TIMED_OUT = "timed out"
    """The server may have received the request, but did not respond in time."""
    INTERRUPTED = "interrupted"
    """The connection ended before the response did."""
    STATUS = "status"
    """The server responded with an error status."""


@dataclass(frozen=True, slots=True)
class HttpFailure:
    """A failed request, before it becomes an error of the caller's own classes."""

    request: str
    """The method and path."""
    kind: FailureKind
    detail: str = ""
    """The text of the network error."""
    timed_out: bool = False
    """A time limit ended the request, possibly while it was being connected."""
    status: int = 0
    body: bytes = b""
    """The beginning of the response with an error status."""
    retry_after: str | None = None
    """The header Retry-After of that response."""


class HttpTransport:
    """A pool of connections to one server, used as an async context manager."""

    def __init__(
        self,
        connection: Connection,
        *,
        map_error: Callable[[HttpFailure], TrimtabError],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send `headers` with every request, and raise what `map_error` makes of a failure."""
        self.connection = connection
        self._map_error = map_error
        self._headers = headers or {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
            headers={"User-Agent": f"trimtab/{__version__}"},
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @asynccontextmanager
    async def exchange(
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        buffer: int = 64 << 10,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send one request and yield its successful response; renew a rejected token and send it once more."""
        assert self._session is not None, "use it as `async with`"
        connection, request = self.connection, f"{method} {path}"
        url = URL(connection.server + path, encoded=True)
        if params is not None:
            url = url.with_query(dict(params))
        with self.map_network_errors(request):
            for is_last_try in (False, True):
                identity = await connection.get_identity()
                sent = CIMultiDict(identity.headers)
                sent.update(self._headers)
                sent.update(headers or {})
                if url.scheme == "http":  # without CONNECT a proxy reads its headers from the request itself
                    sent.update(connection.proxy_headers or {})
                async with self._session.request(
                    method,
                    url,
                    data=None if body is None else io.BytesIO(body),
                    headers=sent,
                    ssl=identity.ssl,
                    server_hostname=connection.server_hostname,
                    proxy=connection.proxy,
                    proxy_headers=connection.proxy_headers,
                    timeout=timeout,
                    read_bufsize=buffer,
                    allow_redirects=False,
                ) as response:
                    if response.status < 300:
                        yield response
                        return
                    failure = await _read_failure(response, request)
                if is_last_try or failure.status != 401 or not await connection.renew(identity):
                    raise self._map_error(failure)

    @contextmanager
    def map_network_errors(self, request: str) -> Iterator[None]:
        """Raise network errors of a request, also those of reading its response, as the caller's own."""
        try:
            yield
        except aiohttp.ClientConnectorCertificateError as error:
            raise self._map_network_error(request, FailureKind.UNTRUSTED, error) from error
        except aiohttp.ClientConnectorSSLError as error:
            raise self._map_network_error(request, FailureKind.TLS_FAILED, error) from error
        except (
            aiohttp.ConnectionTimeoutError,
            aiohttp.ClientConnectorError,
            aiohttp.ClientHttpProxyError,
            UnicodeError,  # an invalid host name such as a..b
        ) as error:
            raise self._map_network_error(request, FailureKind.NOT_CONNECTED, error) from error
        except TimeoutError as error:
            raise self._map_network_error(request, FailureKind.TIMED_OUT, error) from error
        except (aiohttp.ClientError, ssl.SSLError, ConnectionError) as error:
            raise self._map_network_error(request, FailureKind.INTERRUPTED, error) from error

    def _map_network_error(self, request: str, kind: FailureKind, error: Exception) -> TrimtabError:
        timed_out = isinstance(error, TimeoutError)
        return self._map_error(HttpFailure(request, kind, detail=describe(error), timed_out=timed_out))


async def read_body(response: aiohttp.ClientResponse, *, max_bytes: int, padding: int = 0) -> bytes | None:
    """Return the body of a response and so many zeros; None if it is larger, decompressed, than `max_bytes`."""
    # Its value is the buffer itself: joining pieces would hold a body of many megabytes twice.
    body = io.BytesIO()
    async for piece in response.content.iter_chunked(_CHUNK_BYTES):
        if body.tell() + len(piece) > max_bytes:
            return None
        body.write(piece)
    body.write(bytes(padding))
    return body.getvalue()


async def _read_failure(response: aiohttp.ClientResponse, request: str) -> HttpFailure:
    body = b""
    while len(body) < _MAX_ERROR_BYTES and (chunk := await response.content.readany()):
        body += chunk
    return HttpFailure(
        request,
        FailureKind.STATUS,
        status=response.status,
        body=body,
        retry_after=response.headers.get("Retry-After"),
    )
