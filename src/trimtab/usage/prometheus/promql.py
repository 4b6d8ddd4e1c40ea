"""PromQL text from values, so that nothing a name may hold can change what a query means.

Pure. Left out: which series there are (`scheme`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

Matchers = tuple[str, ...]


def quoted(value: str) -> str:
    """A string as PromQL writes it."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def equals(label: str, value: str) -> str:
    return f"{label}={quoted(value)}"


def differs(label: str, value: str) -> str:
    return f"{label}!={quoted(value)}"


def like(label: str, pattern: str) -> str:
    """A label that is all of a pattern; PromQL anchors its patterns at both ends."""
    return f"{label}=~{quoted(pattern)}"


def one_of(label: str, values: Iterable[str]) -> str:
    """A label that has one of these values, each meant to the letter."""
    values = tuple(values)
    if len(values) == 1:
        return equals(label, values[0])
    return like(label, "|".join(map(re.escape, values)))


def all_equal(labels: Mapping[str, str]) -> Matchers:
    return tuple(equals(label, value) for label, value in labels.items())


def selector(metric: str, matchers: Iterable[str]) -> str:
    return f"{metric}{{{','.join(matchers)}}}"


def span(seconds: float) -> str:
    """A duration; PromQL has no fractions, so it is in milliseconds where need be."""
    milliseconds = max(1, round(seconds * 1000))
    return f"{milliseconds // 1000}s" if milliseconds % 1000 == 0 else f"{milliseconds}ms"
