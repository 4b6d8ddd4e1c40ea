"""Prometheus metrics of the agent: the node and its tiers, read from the series at scrape time, and counters of what it did.

Pods are omitted: cAdvisor exports them, and NodeMetrics report their usage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import REGISTRY, CollectorRegistry, Counter, generate_latest
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


class QosMetrics:
    """The counters of one agent; those of a dry run have other names."""

    def __init__(self, registry: CollectorRegistry, *, dry_run: bool = False) -> None:
        prefix = "dry_run_" if dry_run else ""

        def counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(f"trimtab_node_{name}", documentation, labels, registry=registry)

        self.overruled = counter(
            "knob_requests_overruled_total", "Knob requests that a stronger request overruled", "strategy"
        )
        self.rejected = counter(
            "writes_rejected_total", "Values that the arbiter or the kernel rejected", "knob"
        )
        self.written = counter(f"{prefix}writes_total", "Values written", "knob")
        self.restored = counter(
            f"{prefix}knobs_restored_total", "Knobs restored to their original value", "knob"
        )
        self.evictions = counter(
            f"{prefix}evictions_total", "Evictions by strategy and result", "strategy", "result"
        )
        self.hook_results = counter(
            "hook_results_total", "Results of runtime hooks by hook (nri, cri)", "hook", "result"
        )
        self.failures = counter("strategy_failures_total", "Rounds in which a strategy failed", "strategy")

    def count_hook_results(self, hook: str) -> Callable[[str], None]:
        """Return a function that counts the results of one hook."""
        return lambda result: self.hook_results.labels(hook, result).inc()
