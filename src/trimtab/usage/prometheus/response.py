"""Parse the responses of a PromQL server, strictly and fast.

A matrix has millions of short number texts. Each series is kept as bytes and parsed in one call, so that no
Python object is created per sample. A response that is not exactly what was requested is rejected as a whole,
because half of it would give a wrong maximum. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from trimtab.kernel import kernel
from trimtab.kube.errors import DECODE_ERRORS
from trimtab.usage.errors import ResponseStatus, SourceUnavailable, UsageResponseError, classify_error
from trimtab.usage.trace import Floats

_POWERS_OF_TEN = np.array([float(f"1e{power}") for power in range(23)])
"""The powers of ten that are exact in double precision."""
_MAX_DIGITS = 19
"""The number of digits that always fit into 64 unsigned bits."""

_COMMA, _QUOTE, _OPEN, _CLOSE, _DOT, _MINUS, _PLUS = (ord(sign) for sign in ',"[].-+')
_ZERO, _NINE, _SMALL_E, _N, _A = (ord(sign) for sign in "09eNa")


@kernel()
def read_pairs(text: npt.NDArray[np.uint8], flat: Floats) -> bool:
    """Fill `flat` with a time and a value per sample; return False if the text has another form."""
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


@kernel()
def _parse_number(text: npt.NDArray[np.uint8], at: int) -> tuple[int, float]:
    """Return the end of the number that begins at `at`, and its value; -1 if there is none."""
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
"""The tolerance in seconds; servers return times in milliseconds."""


RowIndices = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]


class TimeGrid(NamedTuple):
    """The times of a range query."""

    start: float
    step: float
    steps: int

    @property
    def end(self) -> float:
        """Return the last time."""
        return self.start + (self.steps - 1) * self.step

    def slice(self, first: int, steps: int) -> TimeGrid:
        """Return the times from step `first` up to `first + steps`."""
        return TimeGrid(self.start + first * self.step, self.step, steps)


class MatrixSeries(msgspec.Struct, frozen=True, gc=False):
    """One series of a matrix, with its numbers still as text."""

    metric: dict[str, str] = {}
    values: msgspec.Raw = msgspec.Raw(b"[]")


class _Matrix(msgspec.Struct, rename="camel", frozen=True, gc=False):
    result_type: str
    result: list[MatrixSeries]


class _MatrixResponse(ResponseStatus, rename="camel", frozen=True, gc=False):
    data: _Matrix | None = None


class _StringsResponse(ResponseStatus, rename="camel", frozen=True, gc=False):
    data: list[str] | None = None


S = TypeVar("S", bound=ResponseStatus)

_MATRIX_DECODER = msgspec.json.Decoder(_MatrixResponse)
_STRINGS_DECODER = msgspec.json.Decoder(_StringsResponse)
_PAIRS_DECODER = msgspec.json.Decoder(list[tuple[float, str]])


def decode_matrix(body: bytes) -> list[MatrixSeries]:
    """Return the series of a range query."""
    data = _decode_success(body, _MATRIX_DECODER).data
    if data is None or data.result_type != "matrix":
        kind = data.result_type if data else "nothing"
        raise UsageResponseError(f"the response is a {kind} instead of a matrix")
    return data.result


def decode_strings(body: bytes) -> list[str]:
    """Return label names or label values."""
    return _decode_success(body, _STRINGS_DECODER).data or []


def _decode_success(body: bytes, decoder: msgspec.json.Decoder[S]) -> S:
    try:
        response = decoder.decode(body)
    except DECODE_ERRORS as error:
        raise UsageResponseError(f"the response is truncated or not JSON of the query API: {error}") from None
    if response.status != "success":
        raise classify_error(response, 200)
    # Thanos, Mimir and remote reads warn when a backend is missing; PromQL's own annotations are harmless.
    missing = [warning for warning in response.warnings if not warning.startswith("PromQL")]
    if missing or response.is_partial:
        raise SourceUnavailable(f"the response is partial: {'; '.join(missing) or 'isPartial'}")
    return response


def max_sample(series: MatrixSeries) -> float:
    """Return the highest sample of a series; 0 if it has no finite one."""
    values = _parse_pairs_slowly(bytes(series.values))[1::2]
    return float(max(values[np.isfinite(values)], default=0.0))


def first_sample(series: MatrixSeries) -> float | None:
    """Return the first sample of a series, if it has any."""
    values = _parse_pairs_slowly(bytes(series.values))[1:2]
    return float(values[0]) if len(values) else None


def decode_samples(found: Sequence[MatrixSeries], grid: TimeGrid) -> tuple[Indices, RowIndices, Floats]:
    """Return the series index, grid row and value of all samples of these series."""
    flat, counts = _parse_all_pairs([bytes(series.values) for series in found])
    times, values = flat[0::2], flat[1::2]
    rows = (times - grid.start) / grid.step
    row = np.rint(rows)
    fits = (row >= 0) & (row < grid.steps) & (np.abs(rows - row) * grid.step < _TIME_TOLERANCE)
    if not fits.all():
        # Thanos' and Mimir's query frontends may move a query to whole steps.
        raise UsageResponseError(
            "the response has samples at unexpected times; a query frontend that aligns times needs queries on whole steps"
        )
    return np.repeat(np.arange(len(found)), counts), row.astype(np.int64), values


def _parse_all_pairs(texts: Sequence[bytes]) -> tuple[Floats, list[int]]:
    """Return alternating times and values of all series, and the sample count of each series.

    Most responses have thousands of series with few samples, so all are parsed at once.
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
    """Return alternating times and values from `[[1700000000,"0.25"],…]`."""
    flat = np.empty(2 * max(0, raw.count(b"[") - 1))
    return flat if len(flat) and read_pairs(np.frombuffer(raw, np.uint8), flat) else _parse_pairs_slowly(raw)


def _parse_pairs_slowly(raw: bytes) -> Floats:
    """Parse blanks, infinities, many digits or errors: slower, but without compilation."""
    try:
        pairs = _PAIRS_DECODER.decode(raw)
        return np.array([number for time, value in pairs for number in (time, float(value))], np.float64)
    except DECODE_ERRORS as error:
        raise UsageResponseError(
            f"the response has samples that are not a time and a value: {error}"
        ) from None
    except ValueError as error:
        raise UsageResponseError(f"the response has a sample that is not a number: {error}") from None
