"""Errors of usage sources, as one tree, and the classification of HTTP errors: retry, split, or give up. Pure.

TrimtabError
└── UsageError             any failure to read usage; the message names the source and the remedy
    ├── SourceUnavailable  no response, or a request to retry later
    ├── SourceRefused      a permanent refusal: credentials, tenant, address or query
    ├── QueryTooLarge      over a limit of the source; a smaller query may succeed
    └── UsageResponseError a truncated or unexpected response; nothing of it is used
"""

from __future__ import annotations

import msgspec

from trimtab.errors import TrimtabError
from trimtab.kube.errors import DECODE_ERRORS
from trimtab.printable import shorten

MAX_MESSAGE_LENGTH = 1000


class UsageError(TrimtabError):
    """A failure to read usage; its message is one printable line, although it quotes the server."""

    def __init__(self, message: str) -> None:
        super().__init__(shorten(message, MAX_MESSAGE_LENGTH))


class SourceUnavailable(UsageError):
    """The source did not respond or is overloaded.

    `retry_after` is the delay in seconds that it asked for.
    """

    def __init__(self, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class SourceTimeout(SourceUnavailable):
    """The source did not respond in time."""


class SourceRefused(UsageError):
    """The source refused the request permanently; a retry cannot succeed."""


class QueryTooLarge(UsageError):
    """The query exceeds a limit of the source."""


class UsageResponseError(UsageError):
    """The response does not match the request."""


_LIMIT_ERRORS = (
    "too many samples",
    "exceeded maximum resolution",
    "too many points",
    "limit",
    "too large",
    "too many series",
    "too long",
    "maxSamplesPerQuery",
    "exceeds",
    "code = ResourceExhausted",
)
_TRANSIENT_ERRORS = ("code = Unavailable", "code = Aborted", "err-mimir-store-consistency-check-failed")
"""Errors that pass by themselves, which Thanos (with gRPC's codes) and Mimir report with status 422."""


class ResponseStatus(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The fields that every response of the query API has."""

    status: str
    error_type: str = ""
    error: str = ""
    message: str = ""
    """The error text of the API server's proxy, if nothing listens behind it."""
    warnings: list[str] = []
    is_partial: bool = False


_DECODER = msgspec.json.Decoder(ResponseStatus)


def classify_http_error(code: int, body: bytes, *, retry_after: float) -> UsageError:
    """Convert an HTTP error of the server, or of a proxy before it, into a `UsageError`."""
    try:
        response = _DECODER.decode(body)
    except DECODE_ERRORS:
        text = " ".join(body[:200].decode("utf-8", "replace").split())
        response = ResponseStatus("error", error=text or f"status {code}")
    return classify_error(response, code, retry_after)


def classify_error(response: ResponseStatus, code: int, retry_after: float = 0.0) -> UsageError:
    """Convert the error in a response with this HTTP status, which may be 200, into a `UsageError`."""
    line = " ".join((response.error or response.message).split()) or f"status {code}"
    if response.error_type == "timeout" or code == 504 or "timed out" in line or "deadline exceeded" in line:
        return SourceTimeout(line)
    if code in {413, 414, 431} or (
        code in {200, 400, 422, 500} and any(limit in line for limit in _LIMIT_ERRORS)
    ):
        return QueryTooLarge(line)
    passing = any(word in line for word in _TRANSIENT_ERRORS)
    if (
        passing
        or code == 429
        or code >= 500
        or response.error_type in {"canceled", "unavailable", "internal"}
    ):
        return SourceUnavailable(line, retry_after=retry_after)
    return SourceRefused(f"{code} {line}{_advice(code)}")


def _advice(code: int) -> str:
    if code in {401, 403}:
        return "; check token_file, username, tenant and headers"
    if code == 404 or 300 <= code < 400:
        return "; check url: /api/v1 must exist below it (for Mimir it ends with /prometheus)"
    return ""
