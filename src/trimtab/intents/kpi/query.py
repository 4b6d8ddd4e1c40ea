"""The PromQL query of a KPI for one target, and the age and scale of what it returns. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from trimtab.api.intent import TargetRef
from trimtab.lazy import LazyModule
from trimtab.namespace_cache import NamespaceBudget, NamespaceCache
from trimtab.usage.prometheus.namespace_scope import NamespaceScope, list_operands, parse_restricted
from trimtab.usage.prometheus.promql import equals, format_duration
from trimtab.usage.prometheus.template import fill_template, require_number

if TYPE_CHECKING:
    import promql_parser as promql
else:  # only Intents need it, and it takes 2 MiB
    promql = LazyModule("promql_parser")

OPERATOR_SERVER = ""
"""The PromQL server of the operator itself."""

LOAD, CPU, CPU_PODS, MEMORY, MEMORY_MEDIAN = "load", "cpu", "cpu pods", "memory", "median memory"
"""The measured quantities other than objectives: the load on the target, the CPU usage of its main container in all
pods, the number of pods in that sum, and the peak memory of the pod that uses most and of the median pod."""

MAX_WINDOW = 300.0
"""The longest window of CPU rates in seconds, for targets with long scrape intervals such as a minute."""


@dataclass(frozen=True, slots=True)
class KpiQuery:
    """The query for one quantity of one target. Queries with the same text and server are equal."""

    promql: str
    server: str = OPERATOR_SERVER
    """The address of the server to query."""
    quantity: str = field(default="", compare=False)
    """The measured quantity: the KPIProfile of an objective, or one of the constants above."""
    namespace: str = field(default="", compare=False)
    target: TargetRef | None = field(default=None, compare=False)
    instant_selectors: tuple[str, ...] = ()
    """The selectors that return the newest sample however old it is, so that its age must be queried too."""
    is_scalar: bool = False
    window: float = 0.0
    """The seconds before now from which samples are read: the longest range, including subqueries and offsets."""


# Users write the queries, and a kept one takes up to 16 KiB: many of them must not use up the memory.
_queries: NamespaceCache[tuple[object, ...], KpiQuery] = NamespaceCache(share=2048)


def build_kpi_query(
    template: str,
    *,
    namespace: str,
    target: TargetRef,
    quantity: str = "",
    server: str = OPERATOR_SERVER,
    scope: NamespaceScope | None = None,
    budget: NamespaceBudget | None = None,
) -> KpiQuery:
    """Build the query for a target, in this scope; raise QueryError with the fix if it does not return a number, and
    BudgetExhausted if the namespace has no time left for a new one.
    """
    key = template, target, quantity, server, scope
    return _queries.get(
        namespace,
        key,
        lambda: _build(template, namespace, target, quantity, server, scope),
        budget=budget,
    )


def _build(
    template: str, namespace: str, target: TargetRef, quantity: str, server: str, scope: NamespaceScope | None
) -> KpiQuery:
    filled = fill_template(template, namespace=namespace, kind=target.kind, name=target.name)
    text, expression = parse_restricted(filled, scope)
    require_number(expression)
    return KpiQuery(
        text,
        server=server,
        quantity=quantity,
        namespace=namespace,
        target=target,
        instant_selectors=tuple(sorted(_find_instant_selectors(expression))),
        is_scalar=_is_scalar(expression),
        window=_lookback(expression),
    )


def build_usage_templates(container: str, window: float) -> dict[str, str]:
    """Build the templates for the CPU and memory usage of a container, by quantity.

    CPU rates are recent ones, or over a longer window for pods that have none: recent rates alone would
    underestimate the usage, and counting a deleted pod for a while is on the safe side.
    """
    matchers = f'namespace="$namespace",pod=~"$pods",{equals("container", container)}'
    rates = " or ".join(
        f"rate(container_cpu_usage_seconds_total{{{matchers}}}[{format_duration(each)}])"
        for each in (window, MAX_WINDOW)
    )
    peaks = f"max_over_time(container_memory_working_set_bytes{{{matchers}}}[1h])"
    return {
        CPU: f"sum({rates})",
        CPU_PODS: f"count({rates})",
        MEMORY: f"max({peaks})",
        MEMORY_MEDIAN: f"quantile(0.5, {peaks})",
    }


def _find_instant_selectors(expression: promql.Expr) -> set[str]:
    """Return the instant selectors of an expression; a range bounds the age of its samples."""
    match expression:
        case promql.VectorSelector(offset=None, at=None):
            return {expression.prettify()}
        case promql.VectorSelector() | promql.MatrixSelector():
            return set()
    return set().union(*map(_find_instant_selectors, list_operands(expression)))


def _lookback(expression: promql.Expr) -> float:
    """Return how far back the expression reads, in seconds: ranges of nested subqueries add up."""
    own = 0.0
    match expression:
        case promql.MatrixSelector(vector_selector=selector, range=span):
            return _to_seconds(span) + _lookback(selector)
        case promql.VectorSelector(offset=offset):
            own = max(0.0, _to_seconds(offset))
        case promql.SubqueryExpr(range=span, offset=offset):
            own = _to_seconds(span) + max(0.0, _to_seconds(offset))
    return own + max(map(_lookback, list_operands(expression)), default=0.0)


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
