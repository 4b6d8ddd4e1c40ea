"""Restrict a PromQL query to the series of one namespace, by a matcher in every selector.

Users of a namespace write queries that the operator sends with its own rights: unrestricted, they would read what
belongs to others. The matcher is inserted into the text, because the parser's trees cannot be printed in linear
time; the tree of the result then has to show the matcher in every selector, or the query is refused. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import promql_parser as promql

from trimtab.usage.prometheus.promql import equals
from trimtab.usage.prometheus.template import QueryError, fill_template, find_query_problem, parse_promql

_TOKEN = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?P<comment>\#[^\n]*)|(?P<space>\s+)|
    (?P<number>[0-9.][\w.]*)|(?P<name>[A-Za-z_:][\w:]*)|(?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)
_LABEL_LISTS = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_KEYWORDS = _LABEL_LISTS | {"and", "or", "unless", "atan2", "bool", "offset", "inf", "nan"}


class NamespaceScope(NamedTuple):
    """The namespace whose series a query may read, and the label by which series name theirs."""

    namespace: str
    label: str


@dataclass(frozen=True, slots=True)
class QueryRules:
    """The administrator's rules for queries of users."""

    label: str = "namespace"
    """The label by which series name their namespace."""
    trusted_namespaces: frozenset[str] = frozenset()
    """The namespaces whose users may query all series."""
    endpoints: frozenset[str] = frozenset()
    """The servers that users may query."""

    def scope(self, *, author: str, reader: str) -> NamespaceScope | None:
        """Return the scope of a query that was written in one namespace and whose result is shown in another; None if
        it may read everything.

        The reader's, because anyone may refer to a query of another namespace and would see that one's values.
        """
        return None if author in self.trusted_namespaces else NamespaceScope(reader, self.label)


class _Token(NamedTuple):
    kind: str
    text: str
    end: int


@lru_cache(maxsize=2048)
def restrict_to_namespace(query: str, scope: NamespaceScope) -> str:
    """Return the query with a matcher for the namespace in every selector; raise QueryError if that is impossible."""
    matcher = str(equals(scope.label, scope.namespace))
    parts, end = [], 0
    for position, is_open in _find_selectors(query):
        parts += [query[end:position], f"{matcher}," if is_open else f"{{{matcher}}}"]
        end = position
    restricted = "".join((*parts, query[end:]))
    wanted = [
        sorted([*_list_matchers(each), (scope.label, "Equal", scope.namespace)]) for each in _selectors(query)
    ]
    # The proof: whatever the scanner took for a selector, the parser finds each with the matcher, and nothing else
    # has changed in it.
    if [sorted(_list_matchers(each)) for each in _selectors(restricted)] != wanted:
        raise QueryError(
            f"cannot be restricted to namespace {scope.namespace}; write every selector as name{{label=...}}"
        )
    return restricted


def find_scoped_problem(template: str, scope: NamespaceScope | None) -> str | None:
    """Describe the problem of a template in this scope, with the fix; None if there is none."""
    problem = find_query_problem(template)
    if problem is None and scope is not None:
        try:
            restrict_to_namespace(
                fill_template(template, namespace=scope.namespace, kind="Deployment", name="web"), scope
            )
        except QueryError as error:
            return str(error)
    return problem


def list_operands(expression: promql.Expr) -> list[promql.Expr]:
    """Return the expressions that an expression is made of.

    The parser's own `walk` copies the rest of the tree at every node, which takes seconds for a query of 400 characters.
    """
    match expression:
        case promql.ParenExpr(expr=inner) | promql.UnaryExpr(expr=inner) | promql.SubqueryExpr(expr=inner):
            return [inner]
        case promql.AggregateExpr(expr=inner, param=parameter):
            return [inner] if parameter is None else [inner, parameter]
        case promql.BinaryExpr(lhs=left, rhs=right):
            return [left, right]
        case promql.Call(args=arguments):
            return list(arguments)
        case promql.MatrixSelector(vector_selector=selector):
            return [selector]
    return []


def _selectors(query: str) -> Iterator[promql.VectorSelector]:
    remaining = [parse_promql(query)]
    while remaining:
        expression = remaining.pop()
        if isinstance(expression, promql.VectorSelector):
            if expression.matchers.or_matchers:
                raise QueryError("has alternatives between matchers; write several selectors instead of `or`")
            yield expression
        if isinstance(expression, promql.Call) and expression.func.name == "info":
            raise QueryError("calls info, which reads series of every namespace; join them by group_left")
        remaining += list_operands(expression)


def _list_matchers(selector: promql.VectorSelector) -> list[tuple[str, str, str]]:
    """Return the name and the matchers of a selector."""
    found = [(each.name, str(each.op).rpartition(".")[2], each.value) for each in selector.matchers.matchers]
    if selector.name is not None:
        found.append(("__name__", "Equal", selector.name))
    return found


def _find_selectors(query: str) -> Iterator[tuple[int, bool]]:
    """Find where the matchers of each selector begin; false if it has no braces, which then have to be added."""
    tokens = [
        _Token(str(found.lastgroup), found.group(), found.end())
        for found in _TOKEN.finditer(query)
        if found.lastgroup not in {"space", "comment"}
    ]
    nothing = _Token("other", "", 0)
    open_brackets: list[str] = []
    for before, token, after in zip([nothing, *tokens], tokens, [*tokens[1:], nothing], strict=False):
        inside = open_brackets[-1] if open_brackets else ""
        if token.text in {"(", "[", "{"} and token.kind == "other":
            open_brackets.append("labels" if before.text.lower() in _LABEL_LISTS else token.text)
            if token.text == "{":
                yield token.end, True
        elif token.text in {")", "]", "}"} and token.kind == "other":
            if open_brackets:
                open_brackets.pop()
        elif token.kind == "name" and inside in {"", "("} and token.text.lower() not in _KEYWORDS:
            # An aggregation's grouping may stand before its parentheses: sum by (a) (b).
            is_called = after.text == "(" or after.text.lower() in {"by", "without"}
            if after.text != "{" and not is_called:
                yield token.end, False
