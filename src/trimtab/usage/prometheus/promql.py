"""Format PromQL from values, with quoting, so that no name can change the meaning of a query.

Matchers are values as well, because remote read encodes them differently (`remote_read.protocol`). Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Matcher:
    """A condition on a label of a series; its text is PromQL."""

    label: str
    operator: Literal["=", "!=", "=~"]
    value: str

    def __str__(self) -> str:
        return f"{self.label}{self.operator}{quote(self.value)}"


Matchers = tuple[Matcher, ...]


def quote(value: str) -> str:
    """Return a quoted PromQL string."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def equals(label: str, value: str) -> Matcher:
    return Matcher(label, "=", value)


def not_equals(label: str, value: str) -> Matcher:
    return Matcher(label, "!=", value)


def matches_pattern(label: str, pattern: str) -> Matcher:
    """Match a label against a pattern; servers anchor it at both ends."""
    return Matcher(label, "=~", pattern)


def matches_any(label: str, values: Iterable[str]) -> Matcher:
    """Match a label with one of these literal values."""
    values = tuple(values)
    if len(values) == 1:
        return equals(label, values[0])
    return matches_pattern(label, "|".join(map(re.escape, values)))


def all_equal(labels: Mapping[str, str]) -> Matchers:
    return tuple(equals(label, value) for label, value in labels.items())


def format_selector(metric: str, matchers: Iterable[Matcher]) -> str:
    return f"{metric}{{{','.join(map(str, matchers))}}}"


def format_duration(seconds: float) -> str:
    """Format a duration; PromQL has no fractions, so it is in milliseconds where necessary."""
    milliseconds = max(1, round(seconds * 1000))
    return f"{milliseconds // 1000}s" if milliseconds % 1000 == 0 else f"{milliseconds}ms"
