"""Prometheus metrics of the node and its tiers, read from the series at scrape time.

Pods are omitted: cAdvisor exports them, and NodeMetrics report their usage.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from trimtab.node.model import NODE, SYSTEM, Metric, MetricWindows, Tier, tier_subject

_SUBJECTS = (NODE, SYSTEM, *map(tier_subject, Tier))


class UsageMetrics(Collector):
    """One gauge per metric, labelled by subject."""

    def __init__(self, windows: MetricWindows) -> None:
        self._windows = windows

    def collect(self) -> Iterable[GaugeMetricFamily]:
        for metric in Metric:
            family = GaugeMetricFamily(
                f"trimtab_node_{metric.value}", f"Latest {metric.value} by subject", labels=["subject"]
            )
            for subject in _SUBJECTS:
                value = self._windows.latest(subject, metric)
                if value is not None:
                    family.add_metric([subject], value)
            yield family


def render_metrics(registry: CollectorRegistry) -> bytes:
    """Render all metrics of the process in Prometheus' text format."""
    return generate_latest(registry) + generate_latest(REGISTRY)
