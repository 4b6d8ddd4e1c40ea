"""Usage sources: the Prometheus family, metrics-server, kubelets, NodeMetrics, files and custom sources."""

from typing import TYPE_CHECKING

from trimtab.lazy import lazy_exports

if TYPE_CHECKING:
    from trimtab.usage.errors import (
        QueryTooLarge,
        SourceRefused,
        SourceTimeout,
        SourceUnavailable,
        UsageError,
        UsageResponseError,
    )
    from trimtab.usage.files import read_trace
    from trimtab.usage.source import Capabilities, Cost, Source, SourceHealth, UsageQuery
    from trimtab.usage.trace import Trace
    from trimtab.usage.usage import PodContainer, Usage

__all__ = [
    "Capabilities",
    "Cost",
    "PodContainer",
    "QueryTooLarge",
    "Source",
    "SourceHealth",
    "SourceRefused",
    "SourceTimeout",
    "SourceUnavailable",
    "Trace",
    "Usage",
    "UsageError",
    "UsageQuery",
    "UsageResponseError",
    "read_trace",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "Capabilities": "source",
        "Cost": "source",
        "PodContainer": "usage",
        "QueryTooLarge": "errors",
        "Source": "source",
        "SourceHealth": "source",
        "SourceRefused": "errors",
        "SourceTimeout": "errors",
        "SourceUnavailable": "errors",
        "Trace": "trace",
        "Usage": "usage",
        "UsageError": "errors",
        "UsageQuery": "source",
        "UsageResponseError": "errors",
        "read_trace": "files",
    },
)
