"""The wire to a PromQL server: one question, one answer, and a name for what went wrong.

Who we are is a `kube.auth.Connection`, for a server of its own as for one behind the API server's proxy. Asking again,
and asking for less, is for the source to decide.
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
"""Bytes of an answer that is read in a thread: others come in meanwhile."""


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
        """What `read` makes of the answer. A form travels in the body, where it may be of any length.

        To the API server's proxy a POST is a deed, for which a reader has no right; so there it is a GET too.
        """
        return await self._request("GET" if self._only_get else "POST", path, form, read)

    async def get(self, path: str, query: Mapping[str, str], read: Callable[[bytes], T]) -> T:
        """The same for what cannot be posted: label values."""
        return await self._request("GET", path, query, read)

    @property
    def can_post(self) -> bool:
        """Whether a body can be sent."""
        return not self._only_get

    async def post_body(
        self, path: str, body: bytes, headers: Mapping[str, str], read: Callable[[bytes], T], *, expected: str
    ) -> T:
        """The same for a body of another kind, whose answer must be of the expected kind."""
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
            answer = await self._send(method, path, payload, headers or {}, identity)
            if answer.status == 401 and await self._connection.renew(identity):
                identity = await self._connection.get_identity()
                answer = await self._send(method, path, payload, headers or {}, identity)
            if answer.status != 200:
                raise classify_http_error(answer.status, answer.body, retry_after=answer.retry_after)
            if not answer.type.startswith(expected):
                raise SourceRefused(f"the answer to {path} is {answer.type or 'of no type'}, not {expected}")
            if len(answer.body) < _THREAD_THRESHOLD:
                return read(answer.body)
            return await asyncio.to_thread(read, answer.body)

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
        if url.scheme == "http":  # a proxy then reads the question itself: there is no CONNECT to tell it by
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
                    f"the answer is larger than bytes_an_answer, {self._max_response_bytes:,}"
                )
            pieces.append(piece)
        return b"".join(pieces)


@contextmanager
def _translate_errors(address: str, timeout: float) -> Iterator[None]:
    """Give what went wrong a name from our own tree, and say where."""
    try:
        yield
    except UsageError as error:
        error.args = (f"{address}: {error}",)
        raise
    except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
        if "WRONG_VERSION_NUMBER" in str(error):
            raise SourceRefused(
                f"{address}: there is a server, but not with TLS; write http:// in url"
            ) from error
        raise SourceRefused(
            f"{address}: the server's certificate is not trusted ({describe(error)}); check ca_file and url"
        ) from error
    except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError, UnicodeError) as error:
        # The last: what no host can be called, such as a..b.
        raise SourceUnavailable(f"{address}: cannot connect: {describe(error)}") from error
    except TimeoutError as error:
        raise SourceTimeout(f"{address}: no answer within {timeout:g} s") from error
    except (aiohttp.ClientError, ssl.SSLError, ConnectionError) as error:
        raise SourceUnavailable(f"{address}: the connection broke: {describe(error)}") from error
    except KubeError as error:
        raise SourceRefused(describe(error)) from error


def _parse_retry_after(header: str | None) -> float:
    try:
        return min(60.0, max(0.0, float(header))) if header else 0.0
    except ValueError:
        return 0.0
