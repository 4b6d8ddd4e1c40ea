"""What a PromQL server answered, read with suspicion and at speed.

The numbers of a matrix are millions of little texts. Each series is kept as the bytes it came in and turned into
numbers in one go, so that no Python object is made for a sample. An answer that is not exactly what was asked for is
refused whole: half an answer would be a wrong maximum. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from numba import njit

from trimtab.kube.errors import DECODE_ERRORS
from trimtab.usage.errors import (
    QueryTooLarge,
    SourceRefused,
    SourceTimeout,
    SourceUnavailable,
    UsageError,
    UsageResponseError,
)
from trimtab.usage.trace import Floats

_POWERS_OF_TEN = np.array([float(f"1e{power}") for power in range(23)])
"""Those that are exact."""
_MAX_DIGITS = 19
"""That an unsigned integer of 64 bits holds for sure."""

_COMMA, _QUOTE, _OPEN, _CLOSE, _DOT, _MINUS, _PLUS = (ord(sign) for sign in ',"[].-+')
_ZERO, _NINE, _SMALL_E, _N, _A = (ord(sign) for sign in "09eNa")


@njit(cache=True)
def read_pairs(text: npt.NDArray[np.uint8], flat: Floats) -> bool:
    """Fill `flat` with a time and a value for each sample; False when the text is not exactly that."""
    at, end, count = 1, text.size, 0
    if end < 2 or text[0] != _OPEN or text[end - 1] != _CLOSE:
        return False
    while count < flat.size:
        if count > 0:
            if at >= end or text[at] != _COMMA:
                return False
            at += 1
        if at >= end or text[at] != _OPEN:
            return False
        at, flat[count] = _parse_number(text, at + 1)
        if at < 0 or at + 1 >= end or text[at] != _COMMA or text[at + 1] != _QUOTE:
            return False
        at, flat[count + 1] = _parse_number(text, at + 2)
        if at < 0 or at + 1 >= end or text[at] != _QUOTE or text[at + 1] != _CLOSE:
            return False
        at += 2
        count += 2
    return bool(at == end - 1)


@njit(cache=True)
def _parse_number(text: npt.NDArray[np.uint8], at: int) -> tuple[int, float]:
    """The number that begins here and where it ends; -1 when none does."""
    end = text.size
    if at + 3 <= end and text[at] == _N and text[at + 1] == _A and text[at + 2] == _N:
        return at + 3, np.nan
    negative = at < end and text[at] == _MINUS
    at += negative
    whole, digits, power, dot = np.uint64(0), 0, 0, False
    while at < end and (_ZERO <= text[at] <= _NINE or (text[at] == _DOT and not dot)):
        if text[at] == _DOT:
            dot = True
        else:
            whole = whole * np.uint64(10) + np.uint64(text[at] - _ZERO)
            digits += 1 if whole > 0 or digits > 0 else 0
            power -= dot
            if digits > _MAX_DIGITS:
                return -1, 0.0
        at += 1
    if digits == 0 and (at == 0 or text[at - 1] != _ZERO):
        return -1, 0.0
    if at < end and text[at] == _SMALL_E:
        at += 1
        below = at < end and text[at] == _MINUS
        at += at < end and (text[at] == _MINUS or text[at] == _PLUS)
        written = 0
        begin = at
        while at < end and _ZERO <= text[at] <= _NINE and at - begin < 4:
            written = written * 10 + int(text[at] - _ZERO)
            at += 1
        if at == begin:
            return -1, 0.0
        power += -written if below else written
    if power < -22 or power > 22:
        return -1, 0.0
    value = float(whole) / _POWERS_OF_TEN[-power] if power < 0 else float(whole) * _POWERS_OF_TEN[power]
    return at, -value if negative else value


_TIME_TOLERANCE = 0.002
"""Seconds: times are answered to the millisecond."""

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
"""Thanos, in gRPC's words, and Mimir say so in a 422: a store behind them is away, and will be back or no longer be
asked."""


RowIndices = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]


class TimeGrid(NamedTuple):
    """The times of a range query."""

    start: float
    step: float
    steps: int

    @property
    def end(self) -> float:
        """The last of them."""
        return self.start + (self.steps - 1) * self.step


class MatrixSeries(msgspec.Struct, frozen=True, gc=False):
    """One series of a matrix, its numbers still as text."""

    metric: dict[str, str] = {}
    values: msgspec.Raw = msgspec.Raw(b"[]")


class _Matrix(msgspec.Struct, rename="camel", frozen=True, gc=False):
    result_type: str
    result: list[MatrixSeries]


class _Response(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """What is in every answer, whatever else is."""

    status: str
    error_type: str = ""
    error: str = ""
    message: str = ""
    """What the API server says in its place, when it passes a question on and nobody is there."""
    warnings: list[str] = []
    is_partial: bool = False


class _MatrixResponse(_Response, rename="camel", frozen=True, gc=False):
    data: _Matrix | None = None


class _StringsResponse(_Response, rename="camel", frozen=True, gc=False):
    data: list[str] | None = None


S = TypeVar("S", bound=_Response)

_RESPONSE_DECODER = msgspec.json.Decoder(_Response)
_MATRIX_DECODER = msgspec.json.Decoder(_MatrixResponse)
_STRINGS_DECODER = msgspec.json.Decoder(_StringsResponse)
_PAIRS_DECODER = msgspec.json.Decoder(list[tuple[float, str]])


def decode_matrix(body: bytes) -> list[MatrixSeries]:
    """The series of a range query."""
    data = _decode_success(body, _MATRIX_DECODER).data
    if data is None or data.result_type != "matrix":
        kind = data.result_type if data else "nothing"
        raise UsageResponseError(f"the answer is a {kind}, not the matrix that was asked for")
    return data.result


def decode_strings(body: bytes) -> list[str]:
    """Label names or label values."""
    return _decode_success(body, _STRINGS_DECODER).data or []


def _decode_success(body: bytes, decoder: msgspec.json.Decoder[S]) -> S:
    try:
        said = decoder.decode(body)
    except DECODE_ERRORS as error:
        raise UsageResponseError(f"the answer is cut off or no JSON of the query API: {error}") from None
    if said.status != "success":
        raise _classify_error(said, 200)
    # Thanos, Mimir and remote reads answer with what they could reach; what PromQL itself remarks is harmless.
    missing = [warning for warning in said.warnings if not warning.startswith("PromQL")]
    if missing or said.is_partial:
        raise SourceUnavailable(f"it answered in part only: {'; '.join(missing) or 'isPartial'}")
    return said


def max_sample(series: MatrixSeries) -> float:
    """The highest sample of a series; 0 where it has none that is a number."""
    values = _parse_pairs_slowly(bytes(series.values))[1::2]
    return float(max(values[np.isfinite(values)], default=0.0))


def first_sample(series: MatrixSeries) -> float | None:
    """The first sample of a series, if it has any."""
    values = _parse_pairs_slowly(bytes(series.values))[1:2]
    return float(values[0]) if len(values) else None


def decode_samples(found: Sequence[MatrixSeries], grid: TimeGrid) -> tuple[Indices, RowIndices, Floats]:
    """All samples of these series: of which series each is, on which row of a grid, and its value."""
    flat, counts = _parse_all_pairs([bytes(series.values) for series in found])
    times, values = flat[0::2], flat[1::2]
    rows = (times - grid.start) / grid.step
    row = np.rint(rows)
    fits = (row >= 0) & (row < grid.steps) & (np.abs(rows - row) * grid.step < _TIME_TOLERANCE)
    if not fits.all():
        # Thanos' and Mimir's query frontends may move a query to whole steps.
        raise UsageResponseError(
            "the answer has samples at times that were not asked for; ask from a whole step on, where a frontend aligns"
        )
    return np.repeat(np.arange(len(found)), counts), row.astype(np.int64), values


def _parse_all_pairs(texts: Sequence[bytes]) -> tuple[Floats, list[int]]:
    """Times and values in turn, of one series after the other, and how many samples each has.

    Most answers have thousands of series with few samples, so all are read as one.
    """
    counts = [max(0, text.count(b"[") - 1) for text in texts]
    flat = np.empty(2 * sum(counts))
    if all((text.startswith(b"[[") and text.endswith(b"]]")) or text == b"[]" for text in texts):
        whole = b"[" + b",".join(text[1:-1] for text in texts if len(text) > 2) + b"]"
        if not len(flat) or read_pairs(np.frombuffer(whole, np.uint8), flat):
            return flat, counts
    one_by_one = [_parse_pairs(text) for text in texts]
    return np.concatenate([np.empty(0), *one_by_one]), [len(numbers) // 2 for numbers in one_by_one]


def _parse_pairs(raw: bytes) -> Floats:
    """Times and values in turn, from `[[1700000000,"0.25"],…]`."""
    flat = np.empty(2 * max(0, raw.count(b"[") - 1))
    return flat if len(flat) and read_pairs(np.frombuffer(raw, np.uint8), flat) else _parse_pairs_slowly(raw)


def _parse_pairs_slowly(raw: bytes) -> Floats:
    """The same with blanks, infinities, many digits or faults: slowly, but at once, for nothing has to be compiled."""
    try:
        pairs = _PAIRS_DECODER.decode(raw)
        return np.array([number for time, value in pairs for number in (time, float(value))], np.float64)
    except DECODE_ERRORS as error:
        raise UsageResponseError(f"the answer has samples that are not a time and a value: {error}") from None
    except ValueError as error:
        raise UsageResponseError(f"the answer has a sample that is no number: {error}") from None


def classify_http_error(code: int, body: bytes, *, retry_after: float) -> UsageError:
    """What an HTTP answer other than 200 means for us, whether the server wrote it or something before it."""
    try:
        said = _RESPONSE_DECODER.decode(body)
    except DECODE_ERRORS:
        text = " ".join(body[:200].decode("utf-8", "replace").split())
        said = _Response("error", error=text or f"status {code}")
    return _classify_error(said, code, retry_after)


def _classify_error(response: _Response, code: int, retry_after: float = 0.0) -> UsageError:
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
        return "; check url: it must be the address under which /api/v1 is, as with Mimir's /prometheus"
    return ""
