"""Everything that can go wrong between us and Kubernetes, as one tree.

    KubeError
    ├── ConfigError             kubeconfig or credentials that cannot be used
    ├── LeadershipLost          the lease is another's, or may be (in lease.py)
    ├── Unreachable             no answer: refused, reset, name unknown, TLS, cut off
    │   ├── TimedOut            no answer in time
    │   └── Garbled             an answer that no API server gives: a proxy's page, or half of one
    └── ApiError                the server answered, and said no
        ├── BadRequest          400
        ├── Unauthorized        401
        ├── Forbidden           403
        ├── NotFound            404
        ├── MethodNotAllowed    405
        ├── NotAcceptable       406
        ├── Conflict            409  somebody else wrote first
        │   ├── AlreadyExists   409
        │   └── FieldOwned      409  another field manager owns what was to be applied
        ├── Gone                410  the version asked for is compacted away: list again
        ├── TooLarge            413
        ├── UnsupportedMediaType 415
        ├── Invalid             422  `causes` names the fields
        ├── TooManyRequests     429
        │   └── DisruptionBlocked   an eviction that a PodDisruptionBudget forbids
        └── ServerError         5xx
            ├── InternalError   500
            ├── Unavailable     503
            └── ServerTimeout   504

An error is named by its outcome, so that a caller writes `except NotFound`. Whether it is worth
another try is a property of the class (`transient`), following the OptiPod seed's tables.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import ClassVar, TypeVar

import msgspec

from trimtab.errors import TrimtabError

T = TypeVar("T")

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError)
"""What msgspec raises of bytes that are no JSON, or not the one that is meant; of such in a text it raises Python's own."""


class KubeError(TrimtabError):
    """Any failure of talking to Kubernetes."""

    transient: ClassVar[bool] = False
    """Whether the same request may well succeed a little later."""


class ConfigError(KubeError):
    """A kubeconfig or credentials that cannot be used; the message names the file, the field and the fix."""


class Unreachable(KubeError):
    """No answer came. `sent` tells whether the server may have acted on the request."""

    transient = True

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class TimedOut(Unreachable):
    """No answer came in time."""


class KubeResponseError(Unreachable):
    """Something answered, and not as an API server does: a proxy with a page of its own, or an answer cut short."""

    @classmethod
    def from_body(cls, body: bytes, why: str, *, request: str) -> KubeResponseError:
        """Of what came as a success."""
        said = f"{why}: {excerpt(body)}" if body else "it is empty"
        advice = "check server of the cluster, and what stands before it"
        return cls(f"{request}: what answers is no API server ({said}); {advice}", sent=True)


class Cause(msgspec.Struct, frozen=True):
    """One reason the server gave, usually a field and what is wrong with it."""

    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: tuple[Cause, ...] = ()
    retryAfterSeconds: float | None = None  # noqa: N815 - the server's spelling


class _ListMetadata(msgspec.Struct, rename={"continue_": "continue"}, frozen=True):
    continue_: str = ""


class Status(msgspec.Struct, frozen=True):
    """The part of a `metav1.Status` that we use."""

    metadata: _ListMetadata = _ListMetadata()
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


class ApiError(KubeError):
    """The server answered with a failure; `message` is what it said."""

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
    """The name is taken."""


class FieldManagerConflict(Conflict):
    """Another field manager owns what was to be applied, and will not have lost it at the next try."""


def is_lost_race(error: Exception) -> bool:
    """Whether somebody else wrote first, so that the next try, with what there is then, may go well."""
    return isinstance(error, Conflict) and not isinstance(error, FieldManagerConflict)


class Gone(ApiError):
    code = 410

    @property
    def continue_token(self) -> str:
        """The token that gets the rest of a list of which a version is no longer known; empty where there is none."""
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
    """A PodDisruptionBudget forbids this eviction now; whether to wait is the caller's decision."""

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
    """The error that a `metav1.Status` stands for; `code` is the HTTP status, which wins when both are given."""
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
    """The error that an HTTP answer stands for, also when something between us and the server wrote it."""
    try:
        status = _STATUS.decode(body)
    except DECODE_ERRORS:
        status = Status(message=excerpt(body), code=code)
    if not status.message:
        status = msgspec.structs.replace(status, message=f"the server answered {code}", code=code)
    return error_from_status(status, request=request, retry_after=_parse_retry_after(retry_after), code=code)


def decode_response(body: bytes, read: Callable[[bytes], T], *, request: str) -> T:
    """What is read in the body of an answer; Garbled where it makes no sense."""
    try:
        return read(body)
    except DECODE_ERRORS as error:
        raise KubeResponseError.from_body(body, describe(error), request=request) from error


def excerpt(body: bytes) -> str:
    """The beginning of what was sent, in one line."""
    return " ".join(body[:200].decode("utf-8", "replace").split())


def _parse_retry_after(header: str | None) -> float | None:
    """Retry-After in seconds; its other form, a date, is not used by Kubernetes and counts as absent."""
    try:
        wished = float(header) if header is not None else math.nan
    except ValueError:
        return None
    return max(0.0, wished) if math.isfinite(wished) else None


_SSL_OBJECT = re.compile(r" ssl:(<[^>]*>|\w+)")
"""What aiohttp tells of its own objects, and nobody can use."""


def describe(error: BaseException) -> str:
    """One line about an error, for a log or a status; some network errors have no text of their own."""
    text = _SSL_OBJECT.sub("", " ".join(str(error).split()))
    return text or type(error).__name__


def format_field_errors(error: ApiError) -> list[str]:
    """What the server found wrong, one line a field."""
    return [f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in error.causes]
