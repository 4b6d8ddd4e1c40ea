"""How an objective is measured: a KPIProfile, read once, with what the operator has for what it leaves out. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trimtab.api.intent import TargetRef
from trimtab.api.kpiprofile import KPIProfileSpec, KPIType
from trimtab.intents.kpi.query import KpiQuery, build_kpi_query, find_kpi_query_problem


@dataclass(frozen=True, slots=True)
class KpiDefinition:
    """Where the number of a KPI comes from."""

    type: KPIType
    less_is_better: bool
    query: str = ""
    """Empty: from the history of the pods."""
    endpoint: str = ""
    """The server to ask; empty for the operator's own."""
    problem: str = ""
    """Why it cannot be measured; empty when it can."""

    @property
    def is_from_pods(self) -> bool:
        return not self.query

    def build_query(self, *, namespace: str, target: TargetRef) -> KpiQuery:
        return build_kpi_query(self.query, namespace=namespace, target=target)


LOAD_PROPERTY = "load"
"""The property of a profile that is a query for the load on the target."""


def find_profile_problem(spec: KPIProfileSpec, queries: Mapping[KPIType, str]) -> str:
    """What is wrong with any of its queries; empty when nothing is. Without its load, a KPI is measured all the same."""
    wrong = find_kpi_query_problem(spec.props[LOAD_PROPERTY]) if LOAD_PROPERTY in spec.props else None
    return resolve_kpi(spec, queries).problem or (f"props.load: {wrong}" if wrong else "")


def resolve_kpi(spec: KPIProfileSpec, queries: Mapping[KPIType, str]) -> KpiDefinition:
    """How a profile measures, given the operator's own queries by type."""
    query = spec.query or queries.get(spec.type, "")
    if query:
        wrong = find_kpi_query_problem(query)
        problem = f"query: {wrong}" if wrong else ""
    elif spec.type is KPIType.AVAILABILITY:
        problem = ""
    else:
        problem = f"query: is needed, since the operator has none for {spec.type}"
    return KpiDefinition(spec.type, spec.less_is_better, query, spec.endpoint or "", problem)


_ROUNDING_TOLERANCE = 1.01


@dataclass(frozen=True, slots=True)
class KpiReading:
    """A number, or the reason that there is none."""

    value: float | None
    reason: str = ""
    """Why it is unknown; empty where it is not."""

    @classmethod
    def from_value(cls, value: float) -> KpiReading:
        """A number that was measured; NaN and the infinities are none."""
        return (
            cls(value)
            if math.isfinite(value)
            else unknown_reading(f"the query gives {value}, which is no number")
        )


def unknown_reading(why: str) -> KpiReading:
    return KpiReading(None, why)


def as_availability(reading: KpiReading, *, wanted: float) -> KpiReading:
    """Of an availability: a percentage is none, and no plan could be made by it. What is a little over was rounded so."""
    if wanted > 1:
        return unknown_reading(
            f"{wanted:g} is wanted, and an availability is at most 1: write 0.999 for 99.9 %"
        )
    if reading.value is None or reading.value <= 1:
        return reading
    if reading.value <= _ROUNDING_TOLERANCE:
        return KpiReading(1.0)
    return unknown_reading(
        f"the query gives {reading.value:g}, and an availability is at most 1: divide it by 100"
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
"""The 99th percentile of latency in milliseconds, and requests a second."""
