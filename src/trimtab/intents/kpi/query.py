"""The PromQL query of a KPI for one target, and the age and scale of what it returns. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache

import promql_parser as promql

from trimtab.api.intent import TargetRef
from trimtab.usage.prometheus.template import fill_template, parse_number_query


@dataclass(frozen=True, slots=True)
class KpiQuery:
    """The query to a PromQL server for one objective of one target."""

    promql: str
    instant_selectors: tuple[str, ...] = ()
    """The selectors that return the newest sample however old it is, so that its age must be queried too."""
    is_scalar: bool = False
    window: float = 0.0
    """The seconds before now from which samples are read: the longest range, including subqueries and offsets."""


@lru_cache(maxsize=65536)
def build_kpi_query(query: str, *, namespace: str, target: TargetRef) -> KpiQuery:
    """Build the query for a target; raise QueryError with the fix if it does not return a number."""
    text = fill_template(query, namespace=namespace, kind=target.kind, name=target.name)
    expression = parse_number_query(text)
    return KpiQuery(
        text,
        tuple(sorted(_find_instant_selectors(expression))),
        _is_scalar(expression),
        _lookback(expression),
    )


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
