"""Usage from servers with the Prometheus query API."""

from trimtab.usage.prometheus.settings import PrometheusSettings
from trimtab.usage.prometheus.source import Prometheus

__all__ = ["Prometheus", "PrometheusSettings"]
