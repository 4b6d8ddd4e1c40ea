"""What the operator counts, in a registry of its own: the names that dashboards and alerts rely on.

The seed's list, and what tells whether recommendations are any good while they are in use. Queues, leases, informers
and Events count for themselves in `trimtab.kube`, in the registry that all of the process shares; `exposition`
gives both. Labels are few: a policy, a namespace, a reason, never a workload, of which there are ten thousand.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Literal

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from trimtab.operator.label_histogram import LabelHistogram

_FRACTIONS = (0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)
_SHORT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    """All that one operator counts; a second operator in the same process has its own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._labelled_collectors: dict[Counter | LabelHistogram, tuple[str, ...]] = {}
        """What goes on counting, by its labels; who sets a gauge takes it back, too."""
        self._known_label_values: dict[str, AbstractSet[str]] = {}

        self.workloads_monitored = self._gauge(
            "workloads_monitored", "Workloads that a policy looks after", "namespace", "policy"
        )
        self.workloads_updated = self._gauge(
            "workloads_updated", "Workloads that run with their recommendation", "namespace", "policy"
        )
        self.workloads_skipped = self._gauge(
            "workloads_skipped", "Workloads left alone, by why", "namespace", "policy", "reason"
        )
        self.reconciliation_duration = self._label_histogram(
            "reconciliation_duration_seconds", "How long a look at a policy's workloads took", "policy"
        )
        self.metrics_collection_duration = self._histogram(
            "metrics_collection_duration_seconds", "How long reading usage took", "provider"
        )
        self.usage_lateness = self._gauge(
            "usage_lateness_seconds",
            "How long ago the last step ended of which all samples have come",
            "provider",
        )
        self.containers_without_samples = self._gauge(
            "containers_without_samples",
            "Containers of sized workloads that run, and have had no sample for 15 minutes",
            "provider",
        )
        self.reconciliation_errors = self._counter(
            "reconciliation_errors_total",
            "Looks that failed, by the kind of error; without a policy: reads of usage, and strategies",
            "policy",
            "error_type",
        )
        self.recommendations = self._counter("recommendations_total", "Recommendations made", "policy")
        self.applications = self._counter(
            "applications_total", "Recommendations put into effect, by how", "policy", "method"
        )

        self.usage_ratio = self._label_histogram(
            "usage_to_recommendation_ratio",
            "Usage of a container as a share of what is recommended for it: above 1 is too little",
            "policy",
            "resource",
            bounds=_FRACTIONS,
        )
        self.oom_kills = self._counter("oom_kills_total", "OOM kills in workloads that we size", "policy")
        self.reverts = self._counter("reverts_total", "Changes taken back, by why", "policy", "reason")

        self.intent_objectives = self._gauge(
            "intent_objectives", "Objectives of intents, by whether they are met", "namespace", "verdict"
        )
        self.intent_violation = self._counter(
            "intent_violation_seconds_total", "How long intents had an objective that was missed", "namespace"
        )
        self.intent_plans = self._counter(
            "intent_plans_total", "Plans made, by what they are for", "namespace", "purpose"
        )
        self.intent_actions = self._counter(
            "intent_deeds_total",
            "Deeds of plans, by whether they were done",
            "namespace",
            "actuator",
            "result",
        )
        self.intent_planning_duration = self._histogram(
            "intent_planning_duration_seconds", "How long a plan took", "planner", buckets=_SHORT_SECONDS
        )
        self.intent_cycle_duration = self._histogram(
            "intent_turn_duration_seconds", "How long it took to look at all intents once"
        )
        self.intent_errors = self._counter(
            "intent_errors_total", "Looks at an intent that failed, by the kind of error", "error_type"
        )
        self.intent_plugins = self._gauge(
            "intent_plugins", "Plugins of intents that are known, by whether they answer", "type", "answers"
        )

        self.config_reloads = self._counter(
            "config_reloads_total", "New configurations, adopted or refused", "result"
        )
        self.config_reloads.labels("refused")  # at 0, or nobody could tell that the first one is new
        self.webhook_reviews = self._counter(
            "webhook_reviews_total", "Questions of the API server, by webhook and answer", "webhook", "answer"
        )
        self.webhook_certificate_expiry = self._gauge(
            "webhook_certificate_expiry_timestamp_seconds", "When the certificate in use expires"
        )

    def remove_stale_labels(self, label: Literal["policy", "namespace"], names: AbstractSet[str]) -> None:
        """Tell no more of those that were there the last time and are gone: others take their place for ever."""
        gone = self._known_label_values.get(label, frozenset()) - names
        self._known_label_values[label] = names
        for collector, labels in self._labelled_collectors.items() if gone else ():
            if label in labels:
                told = {
                    tuple(sample.labels[each] for each in labels)
                    for family in collector.collect()
                    for sample in family.samples
                }
                for values in told:
                    if values[labels.index(label)] in gone:
                        collector.remove(*values)

    def _gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(f"trimtab_{name}", what, labels, registry=self.registry)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        found = Counter(f"trimtab_{name}", what, labels, registry=self.registry)
        self._labelled_collectors[found] = labels
        return found

    def _histogram(
        self, name: str, what: str, *labels: str, buckets: tuple[float, ...] = _SECONDS
    ) -> Histogram:
        return Histogram(f"trimtab_{name}", what, labels, registry=self.registry, buckets=buckets)

    def _label_histogram(
        self, name: str, what: str, *labels: str, bounds: tuple[float, ...] = _SECONDS
    ) -> LabelHistogram:
        found = LabelHistogram(f"trimtab_{name}", what, labels, bounds=bounds)
        self.registry.register(found)
        self._labelled_collectors[found] = labels
        return found

    def render(self) -> bytes:
        """All that the process counts, as Prometheus reads it."""
        return generate_latest(self.registry) + generate_latest(REGISTRY)
