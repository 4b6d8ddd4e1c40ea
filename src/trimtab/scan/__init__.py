"""A read-only report on a cluster: what is requested, used, recommended and at risk, and what it costs."""

from typing import TYPE_CHECKING

from trimtab.lazy import lazy_exports

if TYPE_CHECKING:
    from trimtab.scan.model import ContainerFinding, ScanResult, WorkloadFinding
    from trimtab.scan.pricing import ResourcePrices, read_prices
    from trimtab.scan.scan import Scan, ScanRequest, WorkloadFilter

__all__ = [
    "ContainerFinding",
    "ResourcePrices",
    "Scan",
    "ScanRequest",
    "ScanResult",
    "WorkloadFilter",
    "WorkloadFinding",
    "read_prices",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "ContainerFinding": "model",
        "ResourcePrices": "pricing",
        "Scan": "scan",
        "ScanRequest": "scan",
        "ScanResult": "model",
        "WorkloadFilter": "scan",
        "WorkloadFinding": "model",
        "read_prices": "pricing",
    },
)
