"""The queries for KPIs whose profile has none: those of a service mesh, Linkerd, which measures every service alike.

An administrator says others in the operator's configuration. Availability needs none: it comes from the pods
(`availability`). Power and custom KPIs have no query that would suit all.
"""

from collections.abc import Mapping
from types import MappingProxyType

from trimtab.api.kpiprofile import KPIType

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
