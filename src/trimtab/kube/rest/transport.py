"""HTTP requests to one API server: send, retry where it helps, and map failures to our errors.

This module handles HTTP, credentials, rate limits and failures, and knows nothing about Kubernetes objects. `retry`
decides which failures are retried.
"""

from __future__ import annotations

import asyncio
import io
import random
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address
from typing import Self, TypeVar

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from trimtab import __version__
from trimtab.kube.auth import Connection, is_running_in_pod
from trimtab.kube.cache.projection import JSON
from trimtab.kube.errors import (
    ConfigError,
    KubeError,
    KubeResponseError,
    TimedOut,
    Unauthorized,
    Unreachable,
    decode_response,
    describe,
    error_from_response,
)
from trimtab.kube.rest.retry import RateLimiter, RetryPolicy

T = TypeVar("T")

_MAX_CONCURRENT_REQUESTS = 64
"""The maximum number of requests in flight. Streams do not count: they are long-lived, one for each watched kind."""

_TOTAL_TIMEOUT_FACTOR = 20.0
"""The total time of a response as a multiple of the longest silence, so that a response that trickles ends too."""

_STREAM_BUFFER = 512 << 10
_SMALL_CHUNK_BYTES = 64 << 10
_TLS_RECORD_BYTES = 20 << 10
"""More than the length of a TLS record, so that the start of one never exceeds the limit."""


class Transport:
    """A pool of connections to one API server, used as an async context manager."""

    def __init__(
        self,
        connection: Connection,
        *,
        rate: RateLimiter,
        retry: RetryPolicy,
        timeout: float,
        compress: bool,
        rng: random.Random,
    ) -> None:
        self.connection = connection
        self._compress = compress
        self._rate = rate
        self._retry = retry
        self._timeout = timeout
        self._rng = rng
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT_REQUESTS)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
            headers={
                "User-Agent": f"trimtab/{__version__}",
                "Accept-Encoding": "gzip" if self._compress else "identity",
            },
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        repeatable: bool = True,
        read: Callable[[bytes], T],
    ) -> T:
        """Send a request, retry where it helps, and return the decoded body of the response."""
        # Limit the silence and not the duration: over a slow connection a page of a list takes long, but it arrives.
        timeout = aiohttp.ClientTimeout(
            total=self._timeout * _TOTAL_TIMEOUT_FACTOR, sock_connect=10, sock_read=self._timeout
        )
        attempt = 0
        while True:
            attempt += 1
            try:
                async with (
                    self._slots,
                    self._exchange(
                        method,
                        path,
                        params=params or {},
                        body=body,
                        content_type=content_type,
                        accept=accept,
                        timeout=timeout,
                    ) as response,
                ):
                    content = await response.read()
                return decode_response(content, read, request=f"{method} {path}")
            except KubeError as error:
                delay = self._retry.delay(error, attempt=attempt, repeatable=repeatable, rng=self._rng)
                if delay is None:
                    raise
            await asyncio.sleep(delay)

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], accept: str, idle_timeout: float, batch_window: float
    ) -> AsyncIterator[AsyncIterable[bytes]]:
        """Yield the bytes of an endless response as they arrive; `idle_timeout` seconds without any mean a dead
        connection.

        After a small chunk, reading pauses for `batch_window` seconds, so that what arrives meanwhile is read at
        once.
        """
        # Use our own deadline: aiohttp's stops when it believes that reading is paused or the peer is done, and it
        # does not apply while a connection is being opened.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        with _map_errors(f"GET {path}"):
            async with (
                asyncio.timeout(idle_timeout) as deadline,
                self._exchange(
                    "GET", path, params=params, accept=accept, timeout=timeout, buffer=_STREAM_BUFFER
                ) as response,
            ):
                if "json" not in response.content_type:
                    raise KubeResponseError.from_body(
                        await response.content.read(_SMALL_CHUNK_BYTES),
                        f"its content type is {response.content_type}",
                        request=f"GET {path}",
                    )
                try:
                    _limit_read_ahead(response)
                    yield _read_in_batches(response, batch_window, idle_timeout, deadline)
                finally:
                    # An endless response has no end to wait for: drop the connection instead of closing it
                    # gracefully.
                    if (connection := response.connection) and (transport := connection.transport):
                        transport.abort()

    @asynccontextmanager
    async def _exchange(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str],
        accept: str,
        timeout: aiohttp.ClientTimeout,
        buffer: int = 64 << 10,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send one request and yield its response; renew a rejected token and retry once."""
        request = f"{method} {path}"
        assert self._session is not None, "use the client as an async context manager"
        await asyncio.sleep(self._rate.reserve(asyncio.get_running_loop().time()))
        url = URL(self.connection.server + path, encoded=True).with_query(dict(params))
        with _map_errors(request):
            for last_try in (False, True):
                identity = await self.connection.get_identity()
                headers = CIMultiDict(identity.headers, Accept=accept)
                if body is not None:
                    headers["Content-Type"] = content_type
                async with self._session.request(
                    method,
                    url,
                    data=None if body is None else io.BytesIO(body),
                    headers=headers,
                    ssl=identity.ssl,
                    server_hostname=self.connection.server_hostname,
                    proxy=self.connection.proxy,
                    proxy_headers=self.connection.proxy_headers,
                    timeout=timeout,
                    read_bufsize=buffer,
                    allow_redirects=False,
                ) as response:
                    if response.status < 300:
                        yield response
                        return
                    error = error_from_response(
                        response.status,
                        await response.read(),
                        request=request,
                        retry_after=response.headers.get("Retry-After"),
                    )
                if (
                    last_try
                    or not isinstance(error, Unauthorized)
                    or not await self.connection.renew(identity)
                ):
                    raise error


def is_remote(connection: Connection) -> bool:
    """Return True if compressing responses pays: on a short path it costs both sides more CPU than it saves time.

    A short path is the network of the cluster, seen from a pod, or this machine.
    """
    host = URL(connection.server).host or ""
    try:
        is_here = ip_address(host).is_loopback
    except ValueError:
        is_here = host == "localhost"
    return not is_running_in_pod() and not is_here


@contextmanager
def _map_errors(request: str) -> Iterator[None]:
    """Map network errors to our own classes, and record if the server may have received the request."""
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        raise ConfigError(
            f"{request}: the server's certificate is not trusted ({describe(error)}); "
            "check certificate-authority and tls-server-name of the cluster"
        ) from error
    except (
        aiohttp.ConnectionTimeoutError,
        aiohttp.ClientConnectorError,
        aiohttp.ClientHttpProxyError,
    ) as error:
        kind = TimedOut if isinstance(error, TimeoutError) else Unreachable
        raise kind(f"{request}: cannot connect: {describe(error)}", sent=False) from error
    except TimeoutError as error:
        raise TimedOut(f"{request}: no response in time", sent=True) from error
    except (aiohttp.ClientError, ssl.SSLError, ConnectionError) as error:
        raise Unreachable(
            f"{request}: the connection was interrupted: {describe(error)}", sent=True
        ) from error


def _limit_read_ahead(response: aiohttp.ClientResponse) -> None:
    """Leave data in the kernel's buffer while reading is paused; under TLS, asyncio would otherwise read half a
    megabyte ahead.
    """
    if (connection := response.connection) and (transport := connection.transport):
        limit = getattr(
            transport, "set_read_buffer_limits", None
        )  # plain TCP transports do not have this method
        if limit is not None:
            limit(high=2 * _TLS_RECORD_BYTES, low=_TLS_RECORD_BYTES)


async def _read_in_batches(
    response: aiohttp.ClientResponse, pause: float, idle_timeout: float, deadline: asyncio.Timeout
) -> AsyncIterator[bytes]:
    """Iterate over the bytes of a response; after a small chunk, pause reading so that the next chunk is larger."""
    clock = asyncio.get_running_loop().time
    async for chunk in response.content.iter_any():
        deadline.reschedule(clock() + idle_timeout)
        yield chunk
        if (
            len(chunk) < _SMALL_CHUNK_BYTES
            and (connection := response.connection)
            and (transport := connection.transport)
        ):
            transport.pause_reading()
            await asyncio.sleep(pause)
            transport.resume_reading()
