"""HTTP requests to a usage source: one request, one response of bounded size, and failures as `UsageError`s.

Authentication is a `kube.auth.Connection`, for a server of its own as well as behind the API server's proxy.
Retries and splitting of queries are up to the source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Self, TypeVar
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from trimtab.kube.auth import Connection
from trimtab.kube.errors import KubeError, describe, parse_retry_after
from trimtab.kube.rest.http_transport import FailureKind, HttpFailure, HttpTransport, read_body
from trimtab.usage.cloud_identity import CloudIdentity, OutgoingRequest, encode_query
from trimtab.usage.errors import (
    QueryTooLarge,
    SourceRefused,
    SourceTimeout,
    SourceUnavailable,
    UsageError,
    classify_http_error,
)

T = TypeVar("T")

_THREAD_THRESHOLD = 1 << 18
"""The size in bytes from which a response is parsed in a thread, so that others can be received meanwhile."""
_MAX_RETRY_AFTER = 60.0
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class UsageHttpClient:
    """A client of one server, used as an async context manager."""

    def __init__(
        self,
        connection: Connection,
        *,
        path: str = "",
        only_get: bool = False,
        headers: Mapping[str, str] | None = None,
        timeout: float,
        max_response_bytes: int,
        identity: CloudIdentity | None = None,
    ) -> None:
        """Send requests below `path` of the server; `only_get` is for servers behind the API server's proxy."""
        self._identity = identity
        self.address = connection.server + path
        self._http = HttpTransport(connection, map_error=self._to_usage_error, headers=headers)
        self._path = path
        self._only_get = only_get
        self._timeout = timeout
        self._max_response_bytes = max_response_bytes

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.__aexit__()

    @property
    def can_post(self) -> bool:
        """Return whether a request body can be sent."""
        return not self._only_get

    async def get(self, path: str, query: Mapping[str, str], read: Callable[[bytes], T]) -> T:
        """Send a GET request and return what `read` makes of the response body."""
        return await self._request("GET", path, read, params=query)

    async def post_form(
        self, path: str, form: Mapping[str, str], read: Callable[[bytes], T], *, max_bytes: int | None = None
    ) -> T:
        """Send a form in the request body, where its length is not limited; `max_bytes` further limits the response.

        The API server's proxy authorizes POST as `create`, which a read-only role does not have, so GET is used
        there.
        """
        if self._only_get:
            return await self._request("GET", path, read, params=form, max_bytes=max_bytes)
        body = urlencode(form).encode()
        return await self._request("POST", path, read, body=body, headers=_FORM, max_bytes=max_bytes)

    async def post_body(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        read: Callable[[bytes], T],
        *,
        expected: str,
        padding: int = 0,
    ) -> T:
        """Send a body of another content type and require the response to have the `expected` one.

        `read` gets the response with so many zeros after it.
        """
        return await self._request(
            "POST", path, read, body=body, headers=headers, expected=expected, padding=padding
        )

    async def _request(
        self,
        method: str,
        path: str,
        read: Callable[[bytes], T],
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        expected: str = "",
        max_bytes: int | None = None,
        padding: int = 0,
    ) -> T:
        timeout = aiohttp.ClientTimeout(total=self._timeout, sock_connect=10)
        path_sent = self._path + path
        with self._name_server():
            if self._identity:
                if params:  # signed as they are sent
                    path_sent, params = f"{path_sent}?{encode_query(params)}", None
                url = URL(self._http.connection.server + path_sent, encoded=True)
                request = OutgoingRequest(method, url, body or b"")
                headers = {**(headers or {}), **await self._identity.build_headers(request)}
            async with self._http.exchange(
                method, path_sent, params=params, body=body, headers=headers, timeout=timeout
            ) as response:
                if response.status != 200:
                    raise classify_http_error(response.status, b"", retry_after=0.0)
                content_type = response.headers.get("Content-Type", "")
                content = await self._read_body(response, max_bytes, padding)
            if not content_type.startswith(expected):
                got = content_type or "no content type"
                raise SourceRefused(f"the response to {path} has {got} instead of {expected}")
            if len(content) < _THREAD_THRESHOLD:
                return read(content)
            return await asyncio.to_thread(read, content)

    async def _read_body(
        self, response: aiohttp.ClientResponse, max_bytes: int | None, padding: int
    ) -> bytes:
        limit = self._max_response_bytes if max_bytes is None else min(max_bytes, self._max_response_bytes)
        content = await read_body(response, max_bytes=limit, padding=padding)
        if content is None:
            name = f"{limit:,} bytes" if max_bytes is not None else f"bytes_an_answer ({limit:,} bytes)"
            raise QueryTooLarge(f"the response is larger than {name}")
        return content

    @contextmanager
    def _name_server(self) -> Iterator[None]:
        """Name the server in every error; errors of the connection's credentials name their file already."""
        try:
            yield
        except UsageError as error:
            error.args = (f"{self.address}: {error}",)
            raise
        except KubeError as error:
            raise SourceRefused(describe(error)) from error

    def _to_usage_error(self, failure: HttpFailure) -> UsageError:
        match failure.kind:
            case FailureKind.STATUS:
                retry_after = min(parse_retry_after(failure.retry_after) or 0.0, _MAX_RETRY_AFTER)
                return classify_http_error(failure.status, failure.body, retry_after=retry_after)
            case FailureKind.TLS_FAILED if "WRONG_VERSION_NUMBER" in failure.detail:
                return SourceRefused("the server does not use TLS; change url to http://")
            case FailureKind.UNTRUSTED | FailureKind.TLS_FAILED:
                return SourceRefused(
                    f"the server's certificate is not trusted ({failure.detail}); check ca_file and url"
                )
            case FailureKind.NOT_CONNECTED:
                return SourceUnavailable(f"cannot connect: {failure.detail}")
            case FailureKind.TIMED_OUT:
                return SourceTimeout(f"no response within {self._timeout:g} s")
            case FailureKind.INTERRUPTED:
                return SourceUnavailable(f"the connection broke: {failure.detail}")
