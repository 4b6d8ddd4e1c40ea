"""PromQL templates: queries with placeholders for a workload, filled in so that no name can change their meaning.

A placeholder may stand in a quoted string only, where the name is escaped, also as a regular expression before a
regex matcher. Queries are parsed when they are written, so that errors show at admission. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from trimtab.errors import TrimtabError
from trimtab.lazy import LazyModule
from trimtab.printable import shorten
from trimtab.usage.pod_ownership import build_pod_name_pattern
from trimtab.usage.prometheus.regex_cost import CostlyRegexError, estimate_regex_cost

if TYPE_CHECKING:
    import promql_parser as promql
else:  # only queries of users need it, and it takes 2 MiB
    promql = LazyModule("promql_parser")

MAX_LENGTH = 8192
MAX_NESTING = 40
MAX_OPERATORS = 128
MAX_MATCHERS = 256
MAX_COMMAS = 512
MAX_REGEX_COST = 15_000
MAX_PROBLEM_LENGTH = 500
"""Bounds on queries, far above what people write: users of a namespace write them, and the parser is recursive, takes
memory with the square of the nesting, compiles regular expressions, and runs in the operator's process. Within them a
check takes about 10 ms at most, which a test measures."""

PLACEHOLDERS = ("namespace", "kind", "name", "workload", "pods")
"""The placeholders. `$workload` is the same as `$name`; `$pods` is a pattern of pod names, for `=~` and `!~` only."""

# The parser also ends a comment at a carriage return, and other control characters have no place in a query: refused, they
# cannot make this scan and the parser disagree.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_STRING = re.compile(
    r"""(?P<regex>[=!]~(?:\s|\#[^\n]*\n)*)?(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)|\#[^\n]*""",
    re.DOTALL,
)
# A number is no placeholder: $1 is a capture group in the replacement of label_replace.
_PLACEHOLDER = re.compile(r"\$([A-Za-z_]\w*)")
_SYNTAX = re.compile(
    r"(?P<bracket>[()\[\]{}])|(?P<comma>,)|(?P<operator>[-+*/%^<>=!]+)|\b(?P<word>and|or|unless|atan2)\b",
    re.IGNORECASE,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = frozenset("\\\"'`abfnrtv")
_RAW_QUOTE = "`"


class QueryError(TrimtabError):
    """A query is invalid; the message has the reason and the fix."""


def find_query_problem(template: str) -> str | None:
    """Describe the problem of a template that must return one number, with the fix; None if there is none.

    The template is checked for a name that has all the punctuation that Kubernetes allows. Whether the series exist is
    not checked.
    """
    try:
        require_number(parse_promql(fill_example(template)))
    except QueryError as error:
        return describe_problem(error)
    return None


def describe_problem(error: QueryError) -> str:
    """Describe the problem of a query in one line of bounded length."""
    return shorten(" ".join(str(error).split()), MAX_PROBLEM_LENGTH)


def parse_promql(query: str) -> promql.Expr:
    """Parse a query; raise QueryError if it is invalid or too complex."""
    check_complexity(query)
    return parse_bounded(query)


def parse_bounded(query: str) -> promql.Expr:
    """Parse a query that was made of one within the bounds; raise QueryError if it is invalid."""
    try:
        return promql.parse(query)
    except ValueError as error:
        reason = shorten(" ".join(str(error).split()), MAX_PROBLEM_LENGTH)
        raise QueryError(f"is not valid PromQL: {reason}; try it in Prometheus first") from None


def require_number(expression: promql.Expr) -> promql.Expr:
    """Return the expression; raise QueryError with the fix if it does not return a number."""
    if isinstance(expression, promql.MatrixSelector | promql.SubqueryExpr):
        raise QueryError("returns a range of samples; wrap it in a function such as avg_over_time")
    if isinstance(expression, promql.StringLiteral):
        raise QueryError("returns text; it must return a number")
    return expression


def fill_example(template: str) -> str:
    """Return the query for an example of a workload, by which a template is checked."""
    return fill_template(template, namespace="a-b", kind="Deployment", name="a-b.c")


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
        if (string := found["text"]) is None:
            parts.append(found.group())
        else:
            operator = found["regex"] or ""
            parts += operator, _fill_string(_requote(string), names, pods if operator else None)
        end = found.end()
    parts.append(_reject_placeholders(template[end:]))
    return "".join(parts)


def check_complexity(query: str) -> None:
    """Raise QueryError for a query that would cost the parser much time or memory; scan it once, in linear time."""
    if len(query) > MAX_LENGTH:
        raise QueryError(f"has {len(query)} characters; shorten it to at most {MAX_LENGTH}")
    if control := _CONTROL.search(query):
        raise QueryError(f"has the control character {control.group()!a}; break lines by \\n alone")
    _check_regexes(query)
    counts = dict.fromkeys(("brackets", "operators", "matchers", "commas"), 0)
    depth = open_braces = 0
    for found in _SYNTAX.finditer(_STRING.sub(_keep_operator, query)):
        text = found.group()
        if found["bracket"]:
            step = 1 if text in "([{" else -1
            depth += step
            open_braces += step if text in "{}" else 0
            counts["brackets"] = max(counts["brackets"], depth)
        elif found["comma"]:
            counts["commas"] += 1
        else:
            # A matcher nests nothing, and one is added to every selector of a restricted query.
            counts["matchers" if open_braces > 0 else "operators"] += len(text) if found["operator"] else 1
    for name, most, fix in (
        ("brackets", MAX_NESTING, "nest"),
        ("operators", MAX_OPERATORS, "use a recording rule, or"),
        ("matchers", MAX_MATCHERS, "use a recording rule, or"),
        ("commas", MAX_COMMAS, "use"),
    ):
        if counts[name] > most:
            has = "nests" if name == "brackets" else "has"
            raise QueryError(f"{has} {counts[name]} {name}; {fix} at most {most}")


def _keep_operator(string: re.Match[str]) -> str:
    return "=" if string["regex"] else " "


def _check_regexes(query: str) -> None:
    """Raise QueryError if the regular expressions of a query would take long to compile."""
    cost = 0
    for found in _STRING.finditer(query):
        if not found["regex"]:
            continue
        pattern = _unquote(found["text"])
        try:
            cost += len(pattern) + estimate_regex_cost(pattern)
        except CostlyRegexError as error:
            raise QueryError(f"has a regular expression that {error}") from None
        if cost > MAX_REGEX_COST:
            raise QueryError(
                "has regular expressions that take long to compile; repeat less, use [a-zA-Z] instead of \\w or \\pL, "
                "or fewer of them"
            )


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


def _unquote(string: str) -> str:
    """Return the value of a string; raise QueryError for an escape that could write what this module does not see."""

    def value(escape: re.Match[str]) -> str:
        if (char := escape[1]) not in _ESCAPES:
            raise QueryError(f"has a regular expression with the escape {escape[0]!a}; write the character")
        return char

    return string[1:-1] if string.startswith(_RAW_QUOTE) else _ESCAPE.sub(value, string[1:-1])


def _escape(value: str, quote: str) -> str:
    return value.replace("\\", "\\\\").replace(quote, f"\\{quote}").replace("\n", "\\n")
