"""KPIProfile: how something that people care about is measured, such as the 99th percentile of latency.

An administrator writes a few of them; intents refer to them by name.
"""

import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from trimtab.api.fields import Bool, Count, Text
from trimtab.api.kind import AGE_COLUMN, Kind, KindNames, PrinterColumn
from trimtab.api.model import ApiModel, StatusModel, ValidationRule

_URL = r"^https?://[!-.0-~]+(/[!-~]*)?$"


class KPIType(StrEnum):
    """The kind of a measurement, by which the planner knows which actions move it."""

    LATENCY = "latency"
    AVAILABILITY = "availability"
    THROUGHPUT = "throughput"
    POWER = "power"
    CUSTOM = "custom"


_MORE_IS_BETTER = (KPIType.AVAILABILITY, KPIType.THROUGHPUT)


class KPIProfileSpec(ApiModel):
    """The specification of a measurement: its kind and its query."""

    rules = (
        ValidationRule(
            field="query",
            message="is required when type is custom",
            predicate=lambda self: self.type is not KPIType.CUSTOM or self.query is not None,
            cel="self.type != 'custom' || has(self.query)",
        ),
        ValidationRule(
            field="props",
            message="endpoint must be a URL, such as http://prometheus.monitoring:9090",
            predicate=lambda self: self.endpoint is None or re.fullmatch(_URL, self.endpoint) is not None,
            cel="!has(self.props) || !('endpoint' in self.props) "
            rf"|| self.props['endpoint'].matches(r'{_URL}')",
        ),
    )

    type: KPIType
    """The kind of the measurement: latency, availability, throughput, power or custom."""

    query: Annotated[str, Field(min_length=1, max_length=8192)] | None = None
    """The PromQL query that measures the KPI. Without it, the operator uses its default query for the type."""

    description: Text | None = None
    """The meaning of the query's result, for people."""

    unit: Annotated[str, Field(min_length=1, max_length=32)] | None = None
    """The unit of the query's result, such as seconds, for people. The default is that of the default query."""

    minimize: Bool | None = None
    """True if a lower value is better. The default is false for availability and throughput, true for the others."""

    props: Annotated[dict[str, Text], Field(max_length=32)] = Field(default_factory=dict)
    """Further properties of the source. `endpoint` is the address of the Prometheus server to query; the default
    is the operator's own."""

    @property
    def endpoint(self) -> str | None:
        return self.props.get("endpoint")

    @property
    def less_is_better(self) -> bool:
        return self.type not in _MORE_IS_BETTER if self.minimize is None else self.minimize


class KPIProfileStatus(StatusModel):
    """The operator's findings about a KPIProfile."""

    observed_generation: Count | None = None
    """The generation of the spec that this status describes."""

    resolved: Bool | None = None
    """True if the profile is valid and its query can be sent."""

    reason: Annotated[str, Field(max_length=4096)] | None = None
    """The reason why the profile is not resolved."""


class KPIProfile(Kind):
    """A KPIProfile defines how a quality of a service is measured, such as the 99th percentile of latency."""

    names = KindNames(
        plural="kpiprofiles",
        short=("kpi",),
        namespaced=True,
        columns=(
            PrinterColumn("Type", ".spec.type"),
            PrinterColumn("Resolved", ".status.resolved", "boolean"),
            PrinterColumn("Reason", ".status.reason", priority=1),
            AGE_COLUMN,
        ),
    )

    kind: Literal["KPIProfile"] = "KPIProfile"
    spec: KPIProfileSpec
    status: KPIProfileStatus = KPIProfileStatus()
