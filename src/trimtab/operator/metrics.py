"""The operator's metrics, in a registry of its own: the names that dashboards and alerts rely on.

They are the seed's list, and metrics for the quality of recommendations in use. Work queues, leases, informers and Events
register their own metrics in `trimtab.kube`, in the registry that the whole process shares; `render` returns both. Labels
are a policy, a namespace or a reason, never a workload, because there are tens of thousands of them.

Histograms by policy keep their buckets in arrays. The Prometheus client keeps a lock and a dozen attributes for each
bucket of each series: 2,000 policies took 33 MiB of memory, here half a MiB. The exposed metrics are the same.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from itertools import accumulate
from typing import Literal

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector


class HistogramSeries:
    """The buckets of one combination of labels."""

    def __init__(self, bounds: Sequence[float], row: array[float]) -> None:
        self._bounds = bounds
        self._row = row

    def observe(self, amount: float) -> None:
        """Count one amount."""
        self._row[bisect_left(self._bounds, amount)] += 1
        self._row[-1] += amount

    @contextmanager
    def time(self) -> Iterator[None]:
        """Observe the seconds that the block takes."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.observe(time.perf_counter() - start)


class LabelHistogram(Collector):
    """A histogram by labels. Only one thread, that of the event loop, may write to it."""

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str], *, bounds: Sequence[float]
    ) -> None:
        self.name = name
        self.labelnames = tuple(labels)
        self._documentation = documentation
        self._bounds = tuple(bounds)
        self._rows: dict[tuple[str, ...], array[float]] = {}
        """The counts of each bucket, the last one unbounded, followed by the sum of all amounts, by labels."""

    def labels(self, *values: str) -> HistogramSeries:
        """Return the series with these label values."""
        row = self._rows.get(values)
        if row is None:
            row = self._rows[values] = array("d", bytes(8 * (len(self._bounds) + 2)))
        return HistogramSeries(self._bounds, row)

    def remove(self, *values: str) -> None:
        """Remove the series with these label values."""
        self._rows.pop(values, None)

    def describe(self) -> Iterable[HistogramMetricFamily]:
        yield HistogramMetricFamily(self.name, self._documentation, labels=self.labelnames)

    def collect(self) -> Iterable[HistogramMetricFamily]:
        names = [*(repr(float(bound)) for bound in self._bounds), "+Inf"]
        (family,) = self.describe()
        for values, row in list(self._rows.items()):
            counts = accumulate(row[:-1])
            family.add_metric(values, list(zip(names, counts, strict=True)), row[-1])
        yield family


_FRACTIONS = (0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)
_SHORT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    """The metrics of one operator; a second operator in the same process has its own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._labelled_collectors: dict[Counter | LabelHistogram, tuple[str, ...]] = {}
        """The label names of each counter and histogram; gauges are removed by the code that sets them."""
        self._known_label_values: dict[str, AbstractSet[str]] = {}

        self.workloads_monitored = self._gauge(
            "workloads_monitored", "Workloads that a policy selects", "namespace", "policy"
        )
        self.workloads_updated = self._gauge(
            "workloads_updated", "Workloads that run with their recommendation", "namespace", "policy"
        )
        self.workloads_skipped = self._gauge(
            "workloads_skipped", "Workloads that are not sized, by reason", "namespace", "policy", "reason"
        )
        self.workloads_shifted = self._gauge(
            "workloads_shifted", "Workloads whose usage pattern changed suddenly", "namespace", "policy"
        )
        self.cpu_cores = self._gauge(
            "cpu_cores",
            "CPU requested by pods, recommended for them, and used",
            "namespace",
            "policy",
            "kind",
        )
        self.memory_bytes = self._gauge(
            "memory_bytes",
            "Memory requested by pods, recommended for them, and used",
            "namespace",
            "policy",
            "kind",
        )
        self.cost_per_month = self._gauge(
            "cost_per_month",
            "Cost of requested, recommended and used resources, in the currency of the configuration",
            "namespace",
            "policy",
            "kind",
        )
        self.savings_per_month = self._gauge(
            "savings_per_month",
            "Savings that recommendations make possible, and those that changes realised, in the currency of the configuration",
            "namespace",
            "policy",
            "kind",
        )
        self.savings = self._gauge(
            "savings",
            "Money saved by changes since the installation, in the currency of the configuration",
            "namespace",
            "policy",
        )
        workload = ("namespace", "policy", "workload_kind", "workload", "kind")
        self.workload_cost_per_month = self._gauge(
            "workload_cost_per_month",
            "The same as cost_per_month, of a workload (prices.workloads)",
            *workload,
        )
        self.workload_savings_per_month = self._gauge(
            "workload_savings_per_month",
            "The same as savings_per_month, of a workload (prices.workloads)",
            *workload,
        )
        self.node_cost_per_month = self._gauge(
            "node_cost_per_month",
            "Cost of the nodes of an instance type, in the currency of the configuration",
            "instance_type",
        )
        self.reconciliation_duration = self._label_histogram(
            "reconciliation_duration_seconds", "Duration of a reconcile of a policy's workload", "policy"
        )
        self.metrics_collection_duration = self._histogram(
            "metrics_collection_duration_seconds", "Duration of a read of usage", "provider"
        )
        self.usage_lateness = self._gauge(
            "usage_lateness_seconds",
            "Age of the last step that has all its samples",
            "provider",
        )
        self.containers_without_samples = self._gauge(
            "containers_without_samples",
            "Running containers of sized workloads without a sample for 15 minutes",
            "provider",
        )
        self.reconciliation_errors = self._counter(
            "reconciliation_errors_total",
            "Failed reconciles by type of error; without a policy: failed reads of usage, and failed strategies",
            "policy",
            "error_type",
        )
        self.recommendations = self._counter("recommendations_total", "Recommendations made", "policy")
        self.applications = self._counter(
            "applications_total", "Recommendations applied, by update method", "policy", "method"
        )

        self.usage_ratio = self._label_histogram(
            "usage_to_recommendation_ratio",
            "Usage of a container divided by its recommendation; above 1 the recommendation is too low",
            "policy",
            "resource",
            bounds=_FRACTIONS,
        )
        self.oom_kills = self._counter("oom_kills_total", "OOM kills in sized workloads", "policy")
        self.usage_shifts = self._counter(
            "usage_shifts_total", "Sudden changes of the usage pattern of a workload", "policy"
        )
        self.reverts = self._counter(
            "reverts_total", "Reverted changes, by policy or Intent, and reason", "policy", "intent", "reason"
        )
        self.change_transitions = self._counter(
            "change_transitions_total",
            "Transitions of changes, by state before and after; the reason is a row of docs/reference/transitions.md",
            "from",
            "to",
            "reason",
        )

        self.intent_objectives = self._gauge(
            "intent_objectives", "Objectives of Intents, by verdict", "namespace", "verdict"
        )
        self.intent_violation = self._counter(
            "intent_violation_seconds_total",
            "Time during which an objective of an Intent was missed",
            "namespace",
        )
        self.intent_plans = self._counter(
            "intent_plans_total", "Plans of Intents, by purpose", "namespace", "purpose"
        )
        self.intent_actions = self._counter(
            "intent_actions_total",
            "Actions of Intent plans, by result",
            "namespace",
            "actuator",
            "result",
        )
        self.intent_planning_duration = self._histogram(
            "intent_planning_duration_seconds", "Duration of planning", "planner", buckets=_SHORT_SECONDS
        )
        self.intent_cycle_duration = self._histogram(
            "intent_cycle_duration_seconds", "Duration of one cycle over all Intents"
        )
        self.intent_errors = self._counter(
            "intent_errors_total", "Failed cycles of an Intent, by type of error", "error_type"
        )
        self.intent_plugins = self._gauge(
            "intent_plugins", "Configured Intent plugins, by whether they answer", "type", "answers"
        )

        self.config_reloads = self._counter(
            "config_reloads_total", "Reloads of the configuration, applied or rejected", "result"
        )
        self.config_reloads.labels("rejected")  # start at 0, so that an alert sees the first increase
        self.emergency_stop = self._gauge("emergency_stop", "1 while an emergency stop is in effect")
        self.emergency_stop_unreadable = self._gauge(
            "emergency_stop_unreadable", "1 while the ConfigMap of an emergency stop cannot be read"
        )
        self.webhook_reviews = self._counter(
            "webhook_reviews_total", "Admission reviews, by webhook and answer", "webhook", "answer"
        )
        self.webhook_certificate_expiry = self._gauge(
            "webhook_certificate_expiry_timestamp_seconds", "Expiry time of the certificate in use"
        )

    def remove_stale_labels(self, label: Literal["policy", "namespace"], names: AbstractSet[str]) -> None:
        """Remove the series of policies or namespaces that no longer exist; otherwise they would accumulate."""
        gone = self._known_label_values.get(label, frozenset()) - names
        self._known_label_values[label] = names
        for collector, labels in self._labelled_collectors.items() if gone else ():
            if label in labels:
                series = {
                    tuple(sample.labels[each] for each in labels)
                    for family in collector.collect()
                    for sample in family.samples
                }
                for values in series:
                    if values[labels.index(label)] in gone:
                        collector.remove(*values)

    def _gauge(self, name: str, documentation: str, *labels: str) -> Gauge:
        return Gauge(f"trimtab_{name}", documentation, labels, registry=self.registry)

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        found = Counter(f"trimtab_{name}", documentation, labels, registry=self.registry)
        self._labelled_collectors[found] = labels
        return found

    def _histogram(
        self, name: str, documentation: str, *labels: str, buckets: tuple[float, ...] = _SECONDS
    ) -> Histogram:
        return Histogram(f"trimtab_{name}", documentation, labels, registry=self.registry, buckets=buckets)

    def _label_histogram(
        self, name: str, documentation: str, *labels: str, bounds: tuple[float, ...] = _SECONDS
    ) -> LabelHistogram:
        found = LabelHistogram(f"trimtab_{name}", documentation, labels, bounds=bounds)
        self.registry.register(found)
        self._labelled_collectors[found] = labels
        return found

    def render(self) -> bytes:
        """Return all metrics of the process in the Prometheus text format."""
        return generate_latest(self.registry) + generate_latest(REGISTRY)
