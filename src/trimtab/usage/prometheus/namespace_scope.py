"""Restrict a PromQL query to the series of one namespace, by a matcher in every selector.

Users of a namespace write queries that the operator sends with its own rights: unrestricted, they would read what
belongs to others. The matcher is inserted into the text, because the parser's trees cannot be printed in linear
time; the tree of the result then has to show the matcher in every selector, or the query is refused. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from trimtab.lazy import LazyModule
from trimtab.namespace_cache import NamespaceBudget, NamespaceCache
from trimtab.usage.prometheus.promql import equals
from trimtab.usage.prometheus.template import (
    QueryError,
    describe_problem,
    fill_example,
    parse_bounded,
    parse_promql,
    require_number,
)

if TYPE_CHECKING:
    import promql_parser as promql
else:  # only queries of users need it, and it takes 2 MiB
    promql = LazyModule("promql_parser")

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


_restricted: NamespaceCache[tuple[str, NamespaceScope], str] = NamespaceCache(share=1024)
_problems: NamespaceCache[tuple[str, NamespaceScope | None], str | None] = NamespaceCache(share=1024)


class _Token(NamedTuple):
    kind: str
    text: str
    end: int


def parse_restricted(query: str, scope: NamespaceScope | None) -> tuple[str, promql.Expr]:
    """Return the query with a matcher for the namespace in every selector, and its tree; raise QueryError if that is
    impossible. Without a scope, the query stays as it is.
    """
    expression = parse_promql(query)
    if scope is None:
        return query, expression
    matcher = str(equals(scope.label, scope.namespace))
    parts, end = [], 0
    for position, is_open in _find_selectors(query):
        parts += [query[end:position], f"{matcher}," if is_open else f"{{{matcher}}}"]
        end = position
    restricted = "".join((*parts, query[end:]))
    wanted = [
        sorted([*_list_matchers(each), (scope.label, "Equal", scope.namespace)])
        for each in _selectors(expression)
    ]
    # Not checked for its size again: the matchers that were added must not make a query too complex.
    result = parse_bounded(restricted)
    # The proof: whatever the scanner took for a selector, the parser finds each with the matcher, and nothing else
    # has changed in it.
    if [sorted(_list_matchers(each)) for each in _selectors(result)] != wanted:
        raise QueryError(
            f"cannot be restricted to namespace {scope.namespace}; write every selector as name{{label=...}}"
        )
    return restricted, result


def restrict_to_namespace(query: str, scope: NamespaceScope) -> str:
    """Return the query with a matcher for the namespace in every selector; raise QueryError if that is impossible."""
    return _restricted.get(scope.namespace, (query, scope), lambda: parse_restricted(query, scope)[0])


def find_scoped_problem(
    template: str, scope: NamespaceScope | None, *, budget: NamespaceBudget | None = None
) -> str | None:
    """Describe the problem of a template in this scope, with the fix; None if there is none.

    Kept, because every cycle of the operator asks again. Raises `BudgetExhausted` if the namespace of the scope has no
    time left for a new template.
    """
    if scope is None:  # written by the administrator
        return _problems.get("", (template, None), lambda: _check(template, None))
    return _problems.get(scope.namespace, (template, scope), lambda: _check(template, scope), budget=budget)


def _check(template: str, scope: NamespaceScope | None) -> str | None:
    try:
        _, expression = parse_restricted(fill_example(template), scope)
        require_number(expression)
    except QueryError as error:
        return describe_problem(error)
    return None


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


def _selectors(expression: promql.Expr) -> Iterator[promql.VectorSelector]:
    remaining = [expression]
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
