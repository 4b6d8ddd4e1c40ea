"""Durations exactly as Go parses and formats them: `90s` is `1m30s`, `1.5h` is `1h30m0s`.

Kubernetes stores a duration as the text of Go's `time.Duration`; there is no day, because days differ in length.
There is no arithmetic: controllers compute in seconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_core import CoreSchema, core_schema

from trimtab.api.errors import DurationError, quote

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler

_SECOND = 1_000_000_000
_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # the micro sign
    "μs": 1_000,  # the Greek letter, which Go accepts too
    "ms": 1_000_000,
    "s": _SECOND,
    "m": 60 * _SECOND,
    "h": 3600 * _SECOND,
}
_LIMIT = 2**63
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")
_ADVICE = "write it like 90s, 5m or 1h30m"

# The pattern of a field: no sign, at least one unit.
PATTERN = r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"
MAX_LENGTH = 32
_FIELD = re.compile(PATTERN)


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A span of time, to the nanosecond.

    >>> str(Duration.parse("90s")), Duration.parse("1h30m").seconds
    ('1m30s', 5400.0)
    """

    nanoseconds: int

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Parse what Go's `time.ParseDuration` accepts, and reject what it rejects."""
        unsigned = text.removeprefix(text[:1]) if text[:1] in {"+", "-"} else text
        total = 0 if unsigned == "0" else sum(_parse_parts(text, unsigned))
        negative = text.startswith("-")
        if total > (_LIMIT if negative else _LIMIT - 1):
            raise _make_overflow_error(text)
        return cls(-total if negative else total)

    @classmethod
    def from_seconds(cls, seconds: float) -> Duration:
        return cls(round(seconds * _SECOND))

    @property
    def seconds(self) -> float:
        return self.nanoseconds / _SECOND

    def __str__(self) -> str:
        """Format as hours, minutes and seconds; below one second, in the largest unit with a whole part."""
        sign, rest = ("-" if self.nanoseconds < 0 else ""), abs(self.nanoseconds)
        if rest == 0:
            return "0s"
        if rest < _SECOND:
            unit = next(unit for unit in ("ms", "µs", "ns") if rest >= _UNITS[unit])
            return f"{sign}{_format_ratio(rest, _UNITS[unit])}{unit}"
        minutes, rest = divmod(rest, _UNITS["m"])
        hours, minutes = divmod(minutes, 60)
        text = f"{_format_ratio(rest, _SECOND)}s"
        if hours:
            text = f"{hours}h{minutes}m{text}"
        elif minutes:
            text = f"{minutes}m{text}"
        return sign + text

    def __repr__(self) -> str:
        return f"Duration({str(self)!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            _validate_field, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "pattern": PATTERN, "maxLength": MAX_LENGTH}


def _parse_parts(text: str, unsigned: str) -> list[int]:
    """Parse each number with its unit to nanoseconds."""
    parts: list[int] = []
    while unsigned or not parts:
        part = _PART.match(unsigned)
        assert part is not None  # the pattern also matches the empty text
        whole, fraction, unit = part.groups(default="")
        unsigned = unsigned[part.end() :]
        if not whole and not fraction:
            raise DurationError(f"duration {quote(text)}: a number is missing; {_ADVICE}")
        if not unit:
            raise DurationError(
                f"duration {quote(text)}: a unit is missing after {quote(whole or fraction)}; {_ADVICE}"
            )
        if unit not in _UNITS:
            days = "; write days as hours, like 168h" if unit == "d" else f"; {_ADVICE}"
            raise DurationError(f"duration {quote(text)}: unknown unit {quote(unit)}{days}")
        parts.append(_to_nanoseconds(text, whole, fraction, unit))
    return parts


def _to_nanoseconds(text: str, whole: str, fraction: str, unit: str) -> int:
    significant = whole.lstrip("0")
    if len(significant) > 19 or int(significant or "0") > _LIMIT // _UNITS[unit]:
        raise _make_overflow_error(text)
    # Use floating point in this order, as Go does, so that rounding is the same: 0.3µs is 299ns in both or in
    # neither.
    numerator, scale = 0, 1.0
    for digit in fraction:
        if numerator * 10 + int(digit) > _LIMIT:
            break
        numerator, scale = numerator * 10 + int(digit), scale * 10
    total = int(significant or "0") * _UNITS[unit] + int(float(numerator) * (_UNITS[unit] / scale))
    if total > _LIMIT:
        raise _make_overflow_error(text)
    return total


def _make_overflow_error(text: str) -> DurationError:
    return DurationError(f"duration {quote(text)}: is longer than 292 years, the most that can be kept")


def _format_ratio(value: int, unit: int) -> str:
    """Format `value / unit` with as few digits as needed."""
    whole, fraction = divmod(value, unit)
    digits = f"{fraction:0{len(str(unit)) - 1}d}".rstrip("0") if fraction else ""
    return f"{whole}.{digits}" if digits else str(whole)


def _validate_field(value: object) -> Duration:
    """Validate the value of a field, from a manifest or from our own code."""
    if isinstance(value, Duration):
        return value
    if not isinstance(value, str):
        raise DurationError(f"duration must be text; {_ADVICE}")
    parsed = Duration.parse(value)
    if len(value) > MAX_LENGTH or not _FIELD.fullmatch(value):
        raise DurationError(f'duration "{value}": must be short and not negative; {_ADVICE}')
    return parsed
