"""How an objective is measured: a KPIProfile, read once, with what the operator has for what it leaves out. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trimtab.api.intent import TargetRef
from trimtab.api.kpiprofile import KPIProfileSpec, KPIType
from trimtab.intents.kpi.query import Question, problem_of, question


@dataclass(frozen=True, slots=True)
class Measure:
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
    def from_pods(self) -> bool:
        return not self.query

    def question(self, *, namespace: str, target: TargetRef) -> Question:
        return question(self.query, namespace=namespace, target=target)


LOAD = "load"
"""The property of a profile that is a query for the load on the target."""


def problem_of_profile(spec: KPIProfileSpec, queries: Mapping[KPIType, str]) -> str:
    """What is wrong with any of its queries; empty when nothing is. Without its load, a KPI is measured all the same."""
    wrong = problem_of(spec.props[LOAD]) if LOAD in spec.props else None
    return measure(spec, queries).problem or (f"props.load: {wrong}" if wrong else "")


def measure(spec: KPIProfileSpec, queries: Mapping[KPIType, str]) -> Measure:
    """How a profile measures, given the operator's own queries by type."""
    query = spec.query or queries.get(spec.type, "")
    if query:
        wrong = problem_of(query)
        problem = f"query: {wrong}" if wrong else ""
    elif spec.type is KPIType.AVAILABILITY:
        problem = ""
    else:
        problem = f"query: is needed, since the operator has none for {spec.type}"
    return Measure(spec.type, spec.less_is_better, query, spec.endpoint or "", problem)


_ROUNDED = 1.01


@dataclass(frozen=True, slots=True)
class Reading:
    """A number, or the reason that there is none."""

    value: float | None
    why: str = ""
    """Why it is unknown; empty where it is not."""

    @classmethod
    def of(cls, value: float) -> Reading:
        """A number that was measured; NaN and the infinities are none."""
        return cls(value) if math.isfinite(value) else unknown(f"the query gives {value}, which is no number")


def unknown(why: str) -> Reading:
    return Reading(None, why)


def as_share(reading: Reading, *, wanted: float) -> Reading:
    """Of an availability: a percentage is none, and no plan could be made by it. What is a little over was rounded so."""
    if wanted > 1:
        return unknown(f"{wanted:g} is wanted, and an availability is at most 1: write 0.999 for 99.9 %")
    if reading.value is None or reading.value <= 1:
        return reading
    if reading.value <= _ROUNDED:
        return Reading(1.0)
    return unknown(f"the query gives {reading.value:g}, and an availability is at most 1: divide it by 100")


_INBOUND = 'namespace="$namespace",pod=~"$pods",direction="inbound"'

LINKERD: Mapping[KPIType, str] = MappingProxyType(
    {
        KPIType.LATENCY: (
            f"histogram_quantile(0.99, sum(irate(response_latency_ms_bucket{{{_INBOUND}}}[30s])) by (le))"
        ),
        KPIType.THROUGHPUT: f"sum(irate(request_total{{{_INBOUND}}}[30s]))",
    }
)
"""The 99th percentile of latency in milliseconds, and requests a second."""
