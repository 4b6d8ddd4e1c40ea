"""Definition of a KPI from a KPIProfile and the operator's default queries. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trimtab.api.intent import TargetRef
from trimtab.api.kpiprofile import KPIProfileSpec, KPIType
from trimtab.intents.kpi.query import LOAD, KpiQuery, build_kpi_query
from trimtab.namespace_cache import NamespaceBudget
from trimtab.usage.prometheus.namespace_scope import NamespaceScope, QueryRules, find_scoped_problem


@dataclass(frozen=True, slots=True)
class KpiDefinition:
    """The source of a KPI's value."""

    type: KPIType
    less_is_better: bool
    query: str = ""
    """The PromQL query; empty if the value comes from the history of the pods."""
    endpoint: str = ""
    """The address of the server to query; empty for the operator's own."""
    problem: str = ""
    """The reason why the KPI cannot be measured; empty if it can."""
    scope: NamespaceScope | None = None
    """The namespace whose series the query may read; None for all."""
    unit: str = ""
    """The unit of the values, for people; empty if nobody stated it."""
    description: str = ""
    """The meaning of the values, in words."""

    @property
    def is_from_pods(self) -> bool:
        return not self.query

    def build_query(
        self, *, namespace: str, target: TargetRef, quantity: str, budget: NamespaceBudget | None = None
    ) -> KpiQuery:
        return build_kpi_query(
            self.query,
            namespace=namespace,
            target=target,
            quantity=quantity,
            server=self.endpoint,
            scope=self.scope,
            budget=budget,
        )


def find_profile_problem(
    spec: KPIProfileSpec,
    queries: Mapping[KPIType, str],
    *,
    rules: QueryRules,
    namespace: str,
    budget: NamespaceBudget | None = None,
) -> str:
    """Describe the first problem of a profile in this namespace; empty if there is none. A KPI can be measured without
    its load.
    """
    scope = rules.scope(author=namespace, reader=namespace)
    found = resolve_kpi(spec, queries, rules=rules, scope=scope, budget=budget)
    wrong = find_scoped_problem(spec.props[LOAD], scope, budget=budget) if LOAD in spec.props else None
    return found.problem or (f"props.load: {wrong}" if wrong else "")


def resolve_kpi(
    spec: KPIProfileSpec,
    queries: Mapping[KPIType, str],
    *,
    rules: QueryRules,
    scope: NamespaceScope | None = None,
    budget: NamespaceBudget | None = None,
) -> KpiDefinition:
    """Resolve a profile to a definition, with the operator's default queries by type; those have no scope."""
    query = spec.query or queries.get(spec.type, "")
    if not spec.query:
        scope = None
    if spec.endpoint and spec.endpoint.rstrip("/") not in rules.endpoints:
        problem = (
            "props.endpoint: the administrator has not allowed this server (tenantQueries.endpoints of the "
            "operator); remove it to query the operator's own"
        )
    elif query:
        wrong = find_scoped_problem(query, scope, budget=budget)
        problem = f"query: {wrong}" if wrong else ""
    elif spec.type is KPIType.AVAILABILITY:
        problem = ""
    else:
        problem = f"query: is required, because there is no default query for {spec.type}"
    return KpiDefinition(
        spec.type,
        spec.less_is_better,
        query,
        (spec.endpoint or "").rstrip("/"),
        problem,
        scope,
        spec.unit or (_LINKERD_UNITS.get(spec.type, "") if query == LINKERD_QUERIES.get(spec.type) else ""),
        spec.description or "",
    )


_ROUNDING_TOLERANCE = 1.01


@dataclass(frozen=True, slots=True)
class KpiReading:
    """A measured value, or the reason why it is unknown."""

    value: float | None
    reason: str = ""
    """The reason why the value is unknown; empty if it is known."""

    @classmethod
    def from_value(cls, value: float) -> KpiReading:
        """Create a reading from a measured value; NaN and infinity are unknown."""
        return (
            cls(value)
            if math.isfinite(value)
            else unknown_reading(f"the query returns {value}, which is not a number")
        )


def unknown_reading(reason: str) -> KpiReading:
    return KpiReading(None, reason)


def as_availability(reading: KpiReading, *, wanted: float) -> KpiReading:
    """Check the reading of an availability: a percentage is rejected, a value slightly above 1 is a rounding
    error.
    """
    if wanted > 1:
        return unknown_reading(
            f"{wanted:g} is the target, and an availability is at most 1: write 0.999 for 99.9 %"
        )
    if reading.value is None or reading.value <= 1:
        return reading
    if reading.value <= _ROUNDING_TOLERANCE:
        return KpiReading(1.0)
    return unknown_reading(
        f"the query returns {reading.value:g}, and an availability is at most 1: divide it by 100"
    )


_INBOUND = 'namespace="$namespace",pod=~"$pods",direction="inbound"'

LINKERD_QUERIES: Mapping[KPIType, str] = MappingProxyType(
    {
        KPIType.LATENCY: (
            f"histogram_quantile(0.99, sum(irate(response_latency_ms_bucket{{{_INBOUND}}}[30s])) by (le))"
        ),
        KPIType.THROUGHPUT: f"sum(irate(request_total{{{_INBOUND}}}[30s]))",
    }
)
"""The 99th percentile of latency in milliseconds, and requests per second."""
_LINKERD_UNITS = {KPIType.LATENCY: "ms", KPIType.THROUGHPUT: "requests/s"}
