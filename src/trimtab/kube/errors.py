"""The errors that requests to Kubernetes raise, as one class tree.

    KubeError
    ├── ConfigError             kubeconfig or credentials that cannot be used
    ├── LeadershipLost          another process holds the lease, or may hold it (leader_election)
    ├── Unreachable             no response: refused, reset, unknown name, TLS, cut off
    │   ├── TimedOut            no response in time
    │   └── KubeResponseError   not the response of an API server: a proxy's page, or half of one
    └── ApiError                the server responded with a failure
        ├── BadRequest          400
        ├── Unauthorized        401
        ├── Forbidden           403
        ├── NotFound            404
        ├── MethodNotAllowed    405
        ├── NotAcceptable       406
        ├── Conflict            409  another client wrote first
        │   ├── AlreadyExists   409
        │   └── FieldManagerConflict 409  another field manager owns an applied field
        ├── Gone                410  the requested version was compacted away: list again
        ├── TooLarge            413
        ├── UnsupportedMediaType 415
        ├── Invalid             422  `causes` names the fields
        ├── TooManyRequests     429
        │   └── DisruptionBlocked   an eviction that a PodDisruptionBudget forbids
        └── ServerError         5xx
            ├── InternalError   500
            ├── Unavailable     503
            └── ServerTimeout   504

Errors are named by their outcome, so that a caller writes `except NotFound`. The attribute `transient` tells whether
a retry may help, following the OptiPod seed's tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import ClassVar, TypeVar

import msgspec
import numpy as np

from trimtab.errors import TrimtabError

T = TypeVar("T")

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions that msgspec raises for invalid input: its own for malformed JSON, Python's own for text that is not
UTF-8 and for values that nest a thousand levels deep."""

MAX_DEPTH = 100
"""The levels that are decoded of a response that nests too deeply for the decoder: no field that is read lies deeper."""

_ESCAPE = re.compile(rb"\\.", re.DOTALL)


class KubeError(TrimtabError):
    """A request to Kubernetes, or its preparation, failed."""

    transient: ClassVar[bool] = False
    """The same request may succeed a little later."""


class ConfigError(KubeError):
    """A kubeconfig or credentials cannot be used; the message names the file, the field and the fix."""


class Unreachable(KubeError):
    """No response arrived; `sent` is true if the server may have acted on the request."""

    transient = True

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class TimedOut(Unreachable):
    """No response arrived in time."""


class KubeResponseError(Unreachable):
    """Something other than an API server responded, such as a proxy with its own page, or the response was cut
    short.
    """

    @classmethod
    def from_body(cls, body: bytes, reason: str, *, request: str) -> KubeResponseError:
        """Build the error from the body of a response with a success status."""
        detail = f"{reason}: {excerpt(body)}" if body else "the response is empty"
        advice = "check `server` of the cluster in the kubeconfig, and any proxy in front of it"
        return cls(
            f"{request}: the response is not from a Kubernetes API server ({detail}); {advice}", sent=True
        )


class ResponseTooLarge(KubeError):
    """The response is larger than the limit of the request; the same request would fail again."""


class Cause(msgspec.Struct, frozen=True):
    """A reason that the server gave, usually a field and the problem with it."""

    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: tuple[Cause, ...] = ()
    retryAfterSeconds: float | None = None  # noqa: N815 - the server's spelling


class _ListMetadata(msgspec.Struct, rename={"continue_": "continue"}, frozen=True):
    continue_: str = ""


class Status(msgspec.Struct, frozen=True):
    """The fields of a `metav1.Status` that are read."""

    metadata: _ListMetadata = _ListMetadata()
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


class ApiError(KubeError):
    """The server responded with a failure; `message` is its own text."""

    code: ClassVar[int] = 0

    def __init__(self, status: Status, *, request: str = "", retry_after: float | None = None) -> None:
        super().__init__(f"{request}: {status.message}" if request else status.message)
        details = status.details
        self.status = status
        self.message = status.message
        self.reason = status.reason
        self.causes = details.causes if details else ()
        if retry_after is None and details:
            retry_after = details.retryAfterSeconds
        self.retry_after = retry_after


class BadRequest(ApiError):
    code = 400


class Unauthorized(ApiError):
    code = 401


class Forbidden(ApiError):
    code = 403


class NotFound(ApiError):
    code = 404


class MethodNotAllowed(ApiError):
    code = 405


class NotAcceptable(ApiError):
    code = 406


class Conflict(ApiError):
    code = 409


class AlreadyExists(Conflict):
    """An object of this name exists already."""


class FieldManagerConflict(Conflict):
    """Another field manager owns an applied field; a retry without `force` fails as well."""


def is_lost_race(error: Exception) -> bool:
    """Return True if another client wrote first, so that a retry with the current version may succeed."""
    return isinstance(error, Conflict) and not isinstance(error, FieldManagerConflict)


class Gone(ApiError):
    code = 410

    @property
    def continue_token(self) -> str:
        """The token that continues an expired list with the current objects; empty if the server gave none."""
        return self.status.metadata.continue_


class TooLarge(ApiError):
    code = 413


class UnsupportedMediaType(ApiError):
    code = 415


class Invalid(ApiError):
    code = 422


class TooManyRequests(ApiError):
    code = 429
    transient = True


class DisruptionBlocked(TooManyRequests):
    """A PodDisruptionBudget does not allow this eviction now; the caller decides if it waits."""

    transient = False


class ServerError(ApiError):
    transient = True


class InternalError(ServerError):
    code = 500


class Unavailable(ServerError):
    code = 503


class ServerTimeout(ServerError):
    code = 504


def _collect_by_code(root: type[ApiError]) -> dict[int, type[ApiError]]:
    found: dict[int, type[ApiError]] = {}
    for kind in root.__subclasses__():
        if "code" in vars(kind):
            found[kind.code] = kind
        found |= _collect_by_code(kind)
    return found


_CLASS_BY_CODE = _collect_by_code(ApiError)
_STATUS = msgspec.json.Decoder(Status)


def error_from_status(
    status: Status, *, request: str = "", retry_after: float | None = None, code: int = 0
) -> ApiError:
    """Return the error for a `metav1.Status`; `code` is the HTTP status and takes precedence if both are given."""
    code = code or status.code
    kind = _CLASS_BY_CODE.get(code, ServerError if code >= 500 else ApiError)
    causes = {cause.reason for cause in status.details.causes} if status.details else set()
    if status.reason == "AlreadyExists":
        kind = AlreadyExists
    elif kind is Conflict and "FieldManagerConflict" in causes:
        kind = FieldManagerConflict
    elif kind is TooManyRequests and "DisruptionBudget" in causes:
        kind = DisruptionBlocked
    return kind(status, request=request, retry_after=retry_after)


def error_from_response(code: int, body: bytes, *, request: str, retry_after: str | None = None) -> ApiError:
    """Return the error for an HTTP response, even if a proxy between us and the server wrote it."""
    try:
        status = _STATUS.decode(body)
    except DECODE_ERRORS:
        status = Status(message=excerpt(body), code=code)
    if not status.message:
        status = msgspec.structs.replace(
            status, message=f"the server responded with status {code} and no message", code=code
        )
    return error_from_status(status, request=request, retry_after=parse_retry_after(retry_after), code=code)


def decode_deep(body: bytes, read: Callable[[bytes], T]) -> T:
    """Decode JSON, without the values that nest too deeply for the decoder."""
    try:
        return read(body)
    except RecursionError:
        return read(_cut_deep_values(body))


def _cut_deep_values(document: bytes) -> bytes:
    """Replace each array and object below `MAX_DEPTH` levels of a JSON document by 0; several lines are cut alike.

    Tenants may nest the free-form parts of a custom resource 10,000 levels deep, and one object that cannot be decoded
    must not hide all others. A whole page is scanned without a loop in Python, because it is scanned on the event loop.
    """
    text = np.frombuffer(document, np.uint8)
    # Without escaped characters, each quote begins or ends a string.
    plain = np.frombuffer(_ESCAPE.sub(b"__", document), np.uint8)
    code = ~np.logical_xor.accumulate(plain == ord('"'))
    opens = code & ((plain == ord("[")) | (plain == ord("{")))
    closes = code & ((plain == ord("]")) | (plain == ord("}")))
    depth = np.cumsum(opens.astype(np.int8) - closes.astype(np.int8), dtype=np.int32)
    level = depth + closes  # a closing bracket belongs to the level that it ends
    first = opens & (level == MAX_DEPTH + 1)
    shallow: bytes = np.where(first, np.uint8(ord("0")), text)[(level <= MAX_DEPTH) | first].tobytes()
    return shallow


def decode_response(body: bytes, read: Callable[[bytes], T], *, request: str) -> T:
    """Decode the body of a response; raise KubeResponseError if it is malformed."""
    try:
        return decode_deep(body, read)
    except DECODE_ERRORS as error:
        raise KubeResponseError.from_body(body, describe(error), request=request) from error


def excerpt(body: bytes) -> str:
    """Return the start of a body in one line."""
    return " ".join(body[:200].decode("utf-8", "replace").split())


def parse_retry_after(header: str | None) -> float | None:
    """Parse Retry-After in seconds; its other form, a date, counts as absent."""
    try:
        seconds = float(header) if header is not None else math.nan
    except ValueError:
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


_SSL_OBJECT = re.compile(r" ssl:(<[^>]*>|\w+)")
"""The part of aiohttp's messages that names its own objects; it is removed because it helps nobody."""


def describe(error: BaseException) -> str:
    """Return one line about an error for a log or a status; the class name if the error has no text."""
    text = _SSL_OBJECT.sub("", " ".join(str(error).split()))
    return text or type(error).__name__
