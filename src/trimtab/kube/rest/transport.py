"""Requests to one API server: limit their rate, retry where it helps, and map failures to our errors.

`http_transport` sends them, and `retry` decides which failures are retried. Neither knows Kubernetes objects.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Self, TypeVar

import aiohttp
from yarl import URL

from trimtab.kube.auth import Connection, is_running_in_pod
from trimtab.kube.errors import (
    ConfigError,
    KubeError,
    KubeResponseError,
    ResponseTooLarge,
    TimedOut,
    Unreachable,
    decode_response,
    error_from_response,
)
from trimtab.kube.rest.http_transport import FailureKind, HttpFailure, HttpTransport
from trimtab.kube.rest.resources import JSON
from trimtab.kube.rest.retry import RateLimiter, RetryPolicy

T = TypeVar("T")

_MAX_CONCURRENT_REQUESTS = 64
"""The maximum number of requests in flight. Streams do not count: they are long-lived, one for each watched kind."""

_TOTAL_TIMEOUT_FACTOR = 20.0
"""The total time of a response as a multiple of the longest silence, so that a response that trickles ends too."""

MAX_RESPONSE_BYTES = 64 << 20
"""The maximum size of a response; the largest object has a few megabytes."""

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
        self._http = HttpTransport(
            connection,
            map_error=_to_kube_error,
            headers={"Accept-Encoding": "gzip" if compress else "identity"},
        )
        self._rate = rate
        self._retry = retry
        self._timeout = timeout
        self._rng = rng
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT_REQUESTS)

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.__aexit__()

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
        max_bytes: int = MAX_RESPONSE_BYTES,
        read: Callable[[bytes], T],
    ) -> T:
        """Send a request, retry where it helps, and return the decoded body of the response."""
        # Limit the silence and not the duration: over a slow connection a page of a list takes long, but it arrives.
        timeout = aiohttp.ClientTimeout(
            total=self._timeout * _TOTAL_TIMEOUT_FACTOR, sock_connect=10, sock_read=self._timeout
        )
        headers = {"Accept": accept} if body is None else {"Accept": accept, "Content-Type": content_type}
        attempt = 0
        while True:
            attempt += 1
            try:
                async with self._slots:
                    await self._limit_rate()
                    async with self._http.exchange(
                        method, path, params=params, body=body, headers=headers, timeout=timeout
                    ) as response:
                        content = await _read_content(response, max_bytes, request=f"{method} {path}")
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
        await self._limit_rate()
        with self._http.map_network_errors(f"GET {path}"):
            async with (
                asyncio.timeout(idle_timeout) as deadline,
                self._http.exchange(
                    "GET",
                    path,
                    params=params,
                    headers={"Accept": accept},
                    timeout=timeout,
                    buffer=_STREAM_BUFFER,
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

    async def _limit_rate(self) -> None:
        await asyncio.sleep(self._rate.reserve(asyncio.get_running_loop().time()))


async def _read_content(response: aiohttp.ClientResponse, max_bytes: int, *, request: str) -> bytes:
    """Return the body of a response; refuse one that is larger than this, also unpacked."""
    pieces, size = [], 0
    while piece := await response.content.readany():
        size += len(piece)
        if size > max_bytes:
            raise ResponseTooLarge(f"{request}: the response has more than {max_bytes:,} bytes")
        pieces.append(piece)
    return b"".join(pieces)


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


def _to_kube_error(failure: HttpFailure) -> KubeError:
    """Map a failure to our own classes, and record if the server may have received the request."""
    request = failure.request
    match failure.kind:
        case FailureKind.STATUS:
            return error_from_response(
                failure.status, failure.body, request=request, retry_after=failure.retry_after
            )
        case FailureKind.UNTRUSTED:
            return ConfigError(
                f"{request}: the server's certificate is not trusted ({failure.detail}); "
                "check certificate-authority and tls-server-name of the cluster"
            )
        case FailureKind.NOT_CONNECTED | FailureKind.TLS_FAILED:
            kind = TimedOut if failure.timed_out else Unreachable
            return kind(f"{request}: cannot connect: {failure.detail}", sent=False)
        case FailureKind.TIMED_OUT:
            return TimedOut(f"{request}: no response in time", sent=True)
        case FailureKind.INTERRUPTED:
            return Unreachable(f"{request}: the connection was interrupted: {failure.detail}", sent=True)


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
