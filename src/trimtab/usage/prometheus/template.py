"""PromQL templates: queries with placeholders for a workload, filled in so that no name can change their meaning.

A placeholder may stand in a quoted string only, where the name is escaped, also as a regular expression before a
regex matcher. Queries are parsed when they are written, so that errors show at admission. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import promql_parser as promql

from trimtab.errors import TrimtabError
from trimtab.printable import shorten
from trimtab.usage.pod_ownership import build_pod_name_pattern

MAX_LENGTH = 8192
MAX_NESTING = 48
MAX_OPERATORS = 192
MAX_PROBLEM_LENGTH = 500
"""Bounds on queries, far above what people write: users of a namespace write them, and the parser is recursive, takes
memory with the square of the nesting, and runs in the operator's process."""

PLACEHOLDERS = ("namespace", "kind", "name", "workload", "pods")
"""The placeholders. `$workload` is the same as `$name`; `$pods` is a pattern of pod names, for `=~` and `!~` only."""

_STRING = re.compile(r'"(?:\\.|[^"\\])*"|' r"'(?:\\.|[^'\\])*'|`[^`]*`|#[^\n]*", re.DOTALL)
# A number is no placeholder: $1 is a capture group in the replacement of label_replace.
_PLACEHOLDER = re.compile(r"\$([A-Za-z_]\w*)")
_BRACKET = re.compile(r"[()\[\]{}]")
_OPERATOR = re.compile(r"[-+*/%^<>=!]+|\b(?:and|or|unless|atan2)\b", re.IGNORECASE)
_REGEX = re.compile(r"[=!]~\s*$")
_RAW_QUOTE = "`"

_CHECKED_KINDS = ("Deployment", "ReplicaSet", "DaemonSet", "StatefulSet", "Job", "CronJob", "Rollout")
"""The kinds whose pod names follow different rules; the last one stands for custom kinds."""


class QueryError(TrimtabError):
    """A query is invalid; the message has the reason and the fix."""


@lru_cache(maxsize=2048)
def find_query_problem(template: str) -> str | None:
    """Describe the problem of a template that must return one number, with the fix; None if there is none.

    The template is checked for workloads of all kinds, with a name that has all the punctuation that Kubernetes
    allows. Whether the series exist is not checked. Kept, because every cycle of the operator asks again.
    """
    try:
        for kind in _CHECKED_KINDS:
            parse_number_query(fill_template(template, namespace="a-b", kind=kind, name="a-b.c"))
    except QueryError as error:
        return shorten(" ".join(str(error).split()), MAX_PROBLEM_LENGTH)
    return None


def parse_promql(query: str) -> promql.Expr:
    """Parse a query; raise QueryError if it is invalid or too complex."""
    check_complexity(query)
    try:
        return promql.parse(query)
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise QueryError(f"is not valid PromQL: {reason}; try it in Prometheus first") from None


def parse_number_query(query: str) -> promql.Expr:
    """Parse a query; raise QueryError with the fix if it does not return a number."""
    expression = parse_promql(query)
    if isinstance(expression, promql.MatrixSelector | promql.SubqueryExpr):
        raise QueryError("returns a range of samples; wrap it in a function such as avg_over_time")
    if isinstance(expression, promql.StringLiteral):
        raise QueryError("returns text; it must return a number")
    return expression


def fill_template(template: str, *, namespace: str, kind: str, name: str) -> str:
    """Return the query for one workload; raise QueryError if it is too complex or has placeholders outside of strings.

    Raw strings (backticks) become quoted ones, because the parser reads escapes in them and a name could contain a
    backtick.
    """
    check_complexity(template)
    names = {"namespace": namespace, "kind": kind, "name": name, "workload": name}
    pods = build_pod_name_pattern(kind, name)
    parts, end = [], 0
    for found in _STRING.finditer(template):
        parts.append(_reject_placeholders(template[end : found.start()]))
        string = found.group()
        if string.startswith("#"):
            parts.append(string)
        else:
            pattern = pods if _REGEX.search(template[: found.start()]) else None
            parts.append(_fill_string(_requote(string), names, pattern))
        end = found.end()
    parts.append(_reject_placeholders(template[end:]))
    return "".join(parts)


def check_complexity(query: str) -> None:
    """Raise QueryError for a query that would cost the parser much time or memory; scan it once, in linear time."""
    if len(query) > MAX_LENGTH:
        raise QueryError(f"has {len(query)} characters; shorten it to at most {MAX_LENGTH}")
    code = _STRING.sub(" ", query)
    depth = deepest = 0
    for bracket in _BRACKET.finditer(code):
        depth += 1 if bracket.group() in "([{" else -1
        deepest = max(deepest, depth)
    if deepest > MAX_NESTING:
        raise QueryError(f"nests {deepest} brackets; nest at most {MAX_NESTING}")
    operators = sum(
        len(found.group()) if not found.group().isalnum() else 1 for found in _OPERATOR.finditer(code)
    )
    if operators > MAX_OPERATORS:
        raise QueryError(f"has {operators} operators; use at most {MAX_OPERATORS}, or a recording rule")


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
