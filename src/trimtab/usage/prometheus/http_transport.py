"""The HTTP transport to a PromQL server: one request, one response, and typed errors.

Authentication is a `kube.auth.Connection`, for a server of its own as well as behind the API server's proxy.
Retries and splitting of queries are up to the source.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Self, TypeVar

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from trimtab import __version__
from trimtab.kube.auth import Connection, Identity
from trimtab.kube.errors import KubeError, describe
from trimtab.usage.errors import QueryTooLarge, SourceRefused, SourceTimeout, SourceUnavailable, UsageError
from trimtab.usage.prometheus.response import classify_http_error

T = TypeVar("T")

_CHUNK_BYTES = 1 << 20
_THREAD_THRESHOLD = 1 << 18
"""The size in bytes from which a response is parsed in a thread, so that others can be received meanwhile."""


class _HttpResponse(NamedTuple):
    status: int
    type: str
    body: bytes
    retry_after: float


class HttpTransport:
    """A pool of connections to one PromQL server, used as an async context manager."""

    def __init__(
        self,
        connection: Connection,
        *,
        path: str = "",
        only_get: bool = False,
        headers: Mapping[str, str],
        timeout: float,
        max_response_bytes: int,
    ) -> None:
        self.address = connection.server + path
        self._connection = connection
        self._path = path
        self._only_get = only_get
        self._headers = headers
        self._timeout = timeout
        self._max_response_bytes = max_response_bytes
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            headers={"User-Agent": f"trimtab/{__version__}"},
            timeout=aiohttp.ClientTimeout(total=self._timeout, sock_connect=10),
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(self, path: str, form: Mapping[str, str], read: Callable[[bytes], T]) -> T:
        """Send a form and return what `read` makes of the response body.

        A form is sent in the request body, where its length is not limited. The API server's proxy authorizes
        POST as `create`, which a read-only role does not have, so GET is used there.
        """
        return await self._request("GET" if self._only_get else "POST", path, form, read)

    async def get(self, path: str, query: Mapping[str, str], read: Callable[[bytes], T]) -> T:
        """Send a GET request, for endpoints without POST such as label values."""
        return await self._request("GET", path, query, read)

    @property
    def can_post(self) -> bool:
        """Return whether a request body can be sent."""
        return not self._only_get

    async def post_body(
        self, path: str, body: bytes, headers: Mapping[str, str], read: Callable[[bytes], T], *, expected: str
    ) -> T:
        """Send a body of another content type and require the response to have the `expected` one."""
        return await self._request("POST", path, body, read, headers=headers, expected=expected)

    async def _request(
        self,
        method: str,
        path: str,
        payload: Mapping[str, str] | bytes,
        read: Callable[[bytes], T],
        *,
        headers: Mapping[str, str] | None = None,
        expected: str = "",
    ) -> T:
        with _translate_errors(self.address, self._timeout):
            identity = await self._connection.get_identity()
            response = await self._send(method, path, payload, headers or {}, identity)
            if response.status == 401 and await self._connection.renew(identity):
                identity = await self._connection.get_identity()
                response = await self._send(method, path, payload, headers or {}, identity)
            if response.status != 200:
                raise classify_http_error(response.status, response.body, retry_after=response.retry_after)
            if not response.type.startswith(expected):
                got = response.type or "no content type"
                raise SourceRefused(f"the response to {path} has {got} instead of {expected}")
            if len(response.body) < _THREAD_THRESHOLD:
                return read(response.body)
            return await asyncio.to_thread(read, response.body)

    async def _send(
        self,
        method: str,
        path: str,
        payload: Mapping[str, str] | bytes,
        more: Mapping[str, str],
        identity: Identity,
    ) -> _HttpResponse:
        assert self._session is not None, "use it as `async with`"
        connection = self._connection
        url = URL(connection.server + self._path + path, encoded=True)
        headers = CIMultiDict(identity.headers)
        headers.update(self._headers)
        headers.update(more)
        if url.scheme == "http":  # without CONNECT the proxy reads its headers from the request itself
            headers.update(connection.proxy_headers or {})
        data = payload if isinstance(payload, bytes) else dict(payload)
        async with self._session.request(
            method,
            url.with_query(data) if method == "GET" and isinstance(data, dict) else url,
            data=data if method == "POST" else None,
            headers=headers,
            ssl=identity.ssl,
            server_hostname=connection.server_hostname,
            proxy=connection.proxy,
            proxy_headers=connection.proxy_headers,
            allow_redirects=False,
        ) as response:
            return _HttpResponse(
                status=response.status,
                type=response.headers.get("Content-Type", ""),
                body=await self._read_body(response),
                retry_after=_parse_retry_after(response.headers.get("Retry-After")),
            )

    async def _read_body(self, response: aiohttp.ClientResponse) -> bytes:
        pieces, size = [], 0
        async for piece in response.content.iter_chunked(_CHUNK_BYTES):
            size += len(piece)
            if size > self._max_response_bytes:
                raise QueryTooLarge(
                    f"the response is larger than bytes_an_answer ({self._max_response_bytes:,} bytes)"
                )
            pieces.append(piece)
        return b"".join(pieces)


@contextmanager
def _translate_errors(address: str, timeout: float) -> Iterator[None]:
    """Translate errors into `UsageError`s that name the server."""
    try:
        yield
    except UsageError as error:
        error.args = (f"{address}: {error}",)
        raise
    except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
        if "WRONG_VERSION_NUMBER" in str(error):
            raise SourceRefused(f"{address}: the server does not use TLS; change url to http://") from error
        raise SourceRefused(
            f"{address}: the server's certificate is not trusted ({describe(error)}); check ca_file and url"
        ) from error
    except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError, UnicodeError) as error:
        # UnicodeError: an invalid host name such as a..b.
        raise SourceUnavailable(f"{address}: cannot connect: {describe(error)}") from error
    except TimeoutError as error:
        raise SourceTimeout(f"{address}: no response within {timeout:g} s") from error
    except (aiohttp.ClientError, ssl.SSLError, ConnectionError) as error:
        raise SourceUnavailable(f"{address}: the connection broke: {describe(error)}") from error
    except KubeError as error:
        raise SourceRefused(describe(error)) from error


def _parse_retry_after(header: str | None) -> float:
    try:
        return min(60.0, max(0.0, float(header))) if header else 0.0
    except ValueError:
        return 0.0
