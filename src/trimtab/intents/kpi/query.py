"""The PromQL query of a KPI for one target, with the target's names filled in safely.

A placeholder may stand in a quoted string only, where the name is escaped, also as a regular expression before a
regex matcher. The query is parsed when it is written, so that errors show at admission. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache

import promql_parser as promql

from trimtab.api.intent import TargetRef
from trimtab.errors import TrimtabError
from trimtab.usage.pod_names import build_pod_name_pattern

_STRING = re.compile(r'"(?:\\.|[^"\\])*"|' r"'(?:\\.|[^'\\])*'|`[^`]*`|#[^\n]*", re.DOTALL)
_PLACEHOLDER = re.compile(r"\$(\w+)")
_REGEX = re.compile(r"[=!]~\s*$")
_RAW_QUOTE = "`"

PLACEHOLDERS = ("namespace", "kind", "name", "pods")
"""The placeholders for the target; `$pods` is a pattern of its pods' names, for `=~` and `!~` only."""

_CHECKED_KINDS = ("Deployment", "ReplicaSet", "DaemonSet", "StatefulSet", "Job", "CronJob", "Rollout")
"""The kinds whose pod names follow different rules; the last one stands for custom kinds."""


class QueryError(TrimtabError):
    """A query is invalid; the message has the reason and the fix."""


@dataclass(frozen=True, slots=True)
class KpiQuery:
    """The query to a PromQL server for one objective of one target."""

    promql: str
    instant_selectors: tuple[str, ...] = ()
    """The selectors that return the newest sample however old it is, so that its age must be queried too."""
    is_scalar: bool = False
    window: float = 0.0
    """The seconds before now from which samples are read: the longest range, including subqueries and offsets."""


def find_kpi_query_problem(query: str) -> str | None:
    """Describe the problem of a query that must return one number, with the fix; None if there is none.

    The query is checked for targets of all kinds, with a name that has all the punctuation that Kubernetes allows.
    """
    try:
        for kind in _CHECKED_KINDS:
            build_kpi_query(query, namespace="a-b", target=TargetRef(kind=kind, name="a-b.c"))
    except QueryError as error:
        return " ".join(str(error).split())
    return None


@lru_cache(maxsize=65536)
def build_kpi_query(query: str, *, namespace: str, target: TargetRef) -> KpiQuery:
    """Build the query for a target; raise QueryError with the fix if it does not return a number."""
    names = {"namespace": namespace, "kind": target.kind, "name": target.name}
    text = _fill_placeholders(query, names, pods=build_pod_name_pattern(target.kind, target.name))
    try:
        expression = promql.parse(text)
    except ValueError as error:
        raise QueryError(f"is not valid PromQL: {error}; try it in Prometheus first") from None
    if isinstance(expression, promql.MatrixSelector | promql.SubqueryExpr):
        raise QueryError("returns a range of samples; put a function such as avg_over_time around it")
    if isinstance(expression, promql.StringLiteral):
        raise QueryError("returns text; it must return a number")
    return KpiQuery(
        text,
        tuple(sorted(_find_instant_selectors(expression))),
        _is_scalar(expression),
        _lookback(expression),
    )


def _fill_placeholders(query: str, names: Mapping[str, str], *, pods: str) -> str:
    """Fill in every placeholder in a string; raise QueryError for one outside of strings.

    Raw strings (backticks) become quoted ones, because the parser reads escapes in them and a name could contain a
    backtick.
    """
    parts, end = [], 0
    for found in _STRING.finditer(query):
        parts.append(_reject_placeholders(query[end : found.start()]))
        string = found.group()
        if string.startswith("#"):
            parts.append(string)
        else:
            pattern = pods if _REGEX.search(query[: found.start()]) else None
            parts.append(_fill_string(_requote(string), names, pattern))
        end = found.end()
    parts.append(_reject_placeholders(query[end:]))
    return "".join(parts)


def _reject_placeholders(text: str) -> str:
    if place := _PLACEHOLDER.search(text):
        raise QueryError(f'{place.group()} must stand in quotes, such as namespace="{place.group()}"')
    return text


def _fill_string(string: str, names: Mapping[str, str], pods: str | None) -> str:
    quote = string[0]

    def value(place: re.Match[str]) -> str:
        name = place.group(1)
        if name == "pods":
            if pods is None:
                raise QueryError('$pods is a pattern: match it with =~, such as pod=~"$pods"')
            return _escape(pods, quote)
        if name not in names:
            raise QueryError(
                f"{place.group()} is not a known variable; there are ${', $'.join(PLACEHOLDERS)}"
            )
        return _escape(names[name] if pods is None else re.escape(names[name]), quote)

    return _PLACEHOLDER.sub(value, string)


def _requote(string: str) -> str:
    """Rewrite a raw string with double quotes; others stay as they are."""
    return f'"{_escape(string[1:-1], chr(34))}"' if string.startswith(_RAW_QUOTE) else string


def _escape(value: str, quote: str) -> str:
    return value.replace("\\", "\\\\").replace(quote, f"\\{quote}").replace("\n", "\\n")


def _find_instant_selectors(expression: promql.Expr) -> set[str]:
    """Return the instant selectors of an expression; a range bounds the age of its samples."""
    found: set[str] = set()
    within_range = False

    def visit(node: promql.Expr) -> bool:
        nonlocal within_range
        if isinstance(node, promql.VectorSelector) and not (within_range or node.offset or node.at):
            found.add(node.prettify())
        within_range = isinstance(node, promql.MatrixSelector)
        return True

    promql.walk(expression, visit)
    return found


def _lookback(expression: promql.Expr) -> float:  # noqa: PLR0911 - one return a kind of expression
    """Return how far back the expression reads, in seconds: ranges of nested subqueries add up."""
    match expression:
        case promql.MatrixSelector(vector_selector=selector, range=span):
            return _to_seconds(span) + _lookback(selector)
        case promql.VectorSelector(offset=offset):
            return max(0.0, _to_seconds(offset))
        case promql.SubqueryExpr(expr=inner, range=span, offset=offset):
            return _to_seconds(span) + max(0.0, _to_seconds(offset)) + _lookback(inner)
        case promql.ParenExpr(expr=inner) | promql.UnaryExpr(expr=inner) | promql.AggregateExpr(expr=inner):
            return _lookback(inner)
        case promql.BinaryExpr(lhs=left, rhs=right):
            return max(_lookback(left), _lookback(right))
        case promql.Call(args=arguments):
            return max(map(_lookback, arguments), default=0.0)
    return 0.0


def _to_seconds(span: timedelta | None) -> float:
    return 0.0 if span is None else span.total_seconds()


def _is_scalar(expression: promql.Expr) -> bool:
    match expression:
        case promql.NumberLiteral():
            return True
        case promql.ParenExpr(expr=inner) | promql.UnaryExpr(expr=inner):
            return _is_scalar(inner)
        case promql.BinaryExpr(lhs=left, rhs=right):
            return _is_scalar(left) and _is_scalar(right)
        case promql.Call(func=function):
            return bool(function.return_type == promql.ValueType.Scalar)
    return False
