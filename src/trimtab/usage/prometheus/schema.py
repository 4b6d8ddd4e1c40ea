"""Detect a server's label names and build the queries for container usage.

The kubelet's label names have changed over the years, scrape configurations rename them, and a series may
exist several times: scraped by two jobs, stored by two Prometheus replicas, or left from a container's
previous run. Labels are therefore detected before any query, and of several series of a container the highest
counts, never the sum. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from trimtab.usage.prometheus.promql import (
    Matchers,
    equals,
    format_duration,
    format_selector,
    matches_any,
    matches_pattern,
    not_equals,
)
from trimtab.usage.prometheus.sharding import PodSelector

CPU = "container_cpu_usage_seconds_total"
MEMORY = "container_memory_working_set_bytes"
PERIODS = "container_cpu_cfs_periods_total"
THROTTLED = "container_cpu_cfs_throttled_periods_total"
OOM_EVENTS = "container_oom_events_total"
RESTARTS = "kube_pod_container_status_restarts_total"
LAST_REASON = "kube_pod_container_status_last_terminated_reason"
MACHINE_CORES = "machine_cpu_cores"
MACHINE_MEMORY = "machine_memory_bytes"

SCRAPES_PER_RATE = 4
"""The scrapes per rate window: some are missed, and a rate needs two."""
_STATE_METRICS_INTERVAL = 60.0
"""The assumed scrape interval of kube-state-metrics in seconds, often longer than that of kubelets."""

NAMESPACE = "namespace"
"""The label of the namespace of what is scraped, unless the scrape keeps the series' own."""
JOB = "job"
"""The label that Prometheus sets to the name of the scrape configuration."""

MetricKind = Literal["cpu", "memory", "throttled", "oom"]
METRIC_KINDS: frozenset[MetricKind] = frozenset(get_args(MetricKind))


@dataclass(frozen=True, slots=True)
class ContainerLabels:
    """The labels that identify a container."""

    namespace: str
    pod: str
    container: str
    jobs: tuple[str, ...] = ()
    """The scrape jobs whose series have these labels; empty if all jobs do."""
    exporter_namespaces: tuple[str, ...] = ()
    """The namespaces whose exporters may report on other namespaces; empty if all may."""

    @property
    def restricts_exporters(self) -> bool:
        """True if series with these labels also name the namespace of their exporter, and only some are trusted."""
        return bool(self.exporter_namespaces) and self.namespace != NAMESPACE

    @property
    def group_by(self) -> str:
        return f"{self.namespace}, {self.pod}, {self.container}"

    def build_matchers(self, pods: PodSelector | None = None) -> Matchers:
        """Match containers of these pods or of all, without pod-level cgroups and pause containers."""
        return (
            *((matches_any(JOB, self.jobs),) if self.jobs else ()),
            # Any pod that is scraped may export series with the names of other pods.
            *((matches_any(NAMESPACE, ("", *self.exporter_namespaces)),) if self.restricts_exporters else ()),
            not_equals(self.namespace, "") if pods is None else matches_any(self.namespace, pods.namespaces),
            not_equals(self.pod, "")
            if pods is None or pods.is_unfiltered
            else matches_pattern(self.pod, pods.name_pattern),
            not_equals(self.container, ""),
            not_equals(self.container, "POD"),
        )


KNOWN_LABELS = (
    # A scrape that puts its own pod and container on every series pushes the kubelet's aside,
    ContainerLabels("exported_namespace", "exported_pod", "exported_container"),
    # and on the series of a cAdvisor that runs as a pod they are the cAdvisor's.
    ContainerLabels(
        "container_label_io_kubernetes_pod_namespace",
        "container_label_io_kubernetes_pod_name",
        "container_label_io_kubernetes_container_name",
    ),
    ContainerLabels("namespace", "pod", "container"),
    ContainerLabels("namespace", "pod_name", "container_name"),
    ContainerLabels("kubernetes_namespace", "kubernetes_pod_name", "container_name"),
)


def recognize_labels(present: Collection[str]) -> ContainerLabels | None:
    """Return the known labels that a series with these labels uses."""
    for scheme in KNOWN_LABELS:
        if {scheme.namespace, scheme.pod, scheme.container} <= set(present):
            return scheme
    return None


@dataclass(frozen=True, slots=True)
class LookbackWindow:
    """The look-back of each step in seconds."""

    rate: float
    """The window for counters, which must include two samples."""
    gauge: float
    """The window for gauges, which must include one sample."""
    ooms: float
    """The window for OOM counters, which must share a sample with the next one to miss no kill."""

    @classmethod
    def from_interval(cls, *, step: float, interval: float, override: float = 0.0) -> LookbackWindow:
        """Return a window of one step, or a longer one if samples come too seldom for that."""
        rate = override or max(step, SCRAPES_PER_RATE * interval)
        return cls(
            rate=rate,
            gauge=max(step, 2 * interval),
            ooms=max(rate, step + 2 * max(interval, _STATE_METRICS_INTERVAL)),
        )

    def count_partial_steps(self, step: float) -> int:
        """Return the number of steps after a counter's first sample in which the window is not full yet."""
        return max(1, math.ceil(self.rate / step - 1e-6) - 1)


@dataclass(frozen=True, slots=True)
class MetricQuery:
    """A query for one kind of value, and the labels by which its result names containers."""

    kind: MetricKind
    labels: ContainerLabels
    build_promql: Callable[[PodSelector], str]


@dataclass(frozen=True, slots=True)
class MetricSchema:
    """The labels and metrics of a server, for kubelet and kube-state-metrics series."""

    labels: tuple[ContainerLabels, ...]
    """The label sets of the kubelet's series; each is queried separately because scrape jobs may differ."""
    state_labels: tuple[ContainerLabels, ...]
    metrics: frozenset[str]
    required_matchers: Matchers
    """The matchers that every query includes."""
    cpu_rule: str | None = None
    memory_rule: str | None = None

    @property
    def has_cpu(self) -> bool:
        return (self.cpu_rule or CPU) in self.metrics

    @property
    def has_throttling(self) -> bool:
        return {PERIODS, THROTTLED} <= self.metrics

    @property
    def has_ooms(self) -> bool:
        return OOM_EVENTS in self.metrics or self._has_restart_metrics

    @property
    def _has_restart_metrics(self) -> bool:
        return bool(self.state_labels) and {RESTARTS, LAST_REASON} <= self.metrics

    def build_queries(self, window: LookbackWindow) -> Iterator[MetricQuery]:
        """Yield all queries that the server supports."""
        for labels in self.labels:
            yield MetricQuery("cpu", labels, partial(self._format_cpu_query, labels, window))
            yield MetricQuery("memory", labels, partial(self._format_memory_query, labels, window))
            if self.has_throttling:
                yield MetricQuery("throttled", labels, partial(self._format_throttled_query, labels, window))
            # The kubelet's OOM counter ends with the container, so kube-state-metrics is queried as well.
            if OOM_EVENTS in self.metrics:
                yield MetricQuery("oom", labels, partial(self._format_oom_event_query, labels, window))
        for labels in self.state_labels if self._has_restart_metrics else ():
            yield MetricQuery("oom", labels, partial(self._format_oom_restart_query, labels, window))

    def build_matchers(self, labels: ContainerLabels, pods: PodSelector | None) -> Matchers:
        """Return the matchers for the kubelet's series of these pods, or of all."""
        return (*labels.build_matchers(pods), *self.required_matchers)

    def format_memory_selector(self, labels: ContainerLabels, pods: PodSelector | None = None) -> str:
        return self._format_selector(self.memory_rule or MEMORY, labels, pods)

    def format_sampling_selectors(self, pods: PodSelector | None) -> Iterator[str]:
        """Yield the selectors that reveal the sample interval; a recording rule has its own."""
        for labels in self.labels:
            yield self.format_memory_selector(labels, pods)
            if self.cpu_rule or self.memory_rule:
                yield self._format_selector(self.cpu_rule or CPU, labels, pods)

    def format_container_count_query(
        self, labels: ContainerLabels, pods: PodSelector | None, over: float
    ) -> str:
        """Format the query for the number of containers per namespace."""
        there = _max_by_container(
            f"last_over_time({self.format_memory_selector(labels, pods)}[{format_duration(over)}])", labels
        )
        return f"count by ({labels.namespace}) ({there})"

    def _format_cpu_query(self, labels: ContainerLabels, window: LookbackWindow, pods: PodSelector) -> str:
        """Format the query for CPU in cores; `rate` handles counter resets and needs two samples."""
        if self.cpu_rule:
            rule = self._format_selector(self.cpu_rule, labels, pods)
            return _max_by_container(f"avg_over_time({rule}[{format_duration(window.gauge)}])", labels)
        counter = self._format_selector(CPU, labels, pods)
        # An old kubelet has one series per CPU instead of a total.
        return _max_by_container(
            f"sum without (cpu) (rate({counter}[{format_duration(window.rate)}]))", labels
        )

    def _format_memory_query(self, labels: ContainerLabels, window: LookbackWindow, pods: PodSelector) -> str:
        """Format the query for memory in bytes: the maximum of a step, so that a long step hides no peak."""
        return _max_by_container(
            f"max_over_time({self.format_memory_selector(labels, pods)}[{format_duration(window.gauge)}])",
            labels,
        )

    def _format_throttled_query(
        self, labels: ContainerLabels, window: LookbackWindow, pods: PodSelector
    ) -> str:
        """Format the query for the share of throttled CFS periods."""
        over = format_duration(window.rate)
        throttled, all_periods = (
            self._format_selector(metric, labels, pods) for metric in (THROTTLED, PERIODS)
        )
        return _max_by_container(f"rate({throttled}[{over}]) / rate({all_periods}[{over}])", labels)

    def _format_oom_event_query(
        self, labels: ContainerLabels, window: LookbackWindow, pods: PodSelector
    ) -> str:
        """Format the query that has a sample while an OOM kill is within the window."""
        events = self._format_selector(OOM_EVENTS, labels, pods)
        return _max_by_container(f"increase({events}[{format_duration(window.ooms)}])", labels) + " > 0"

    def _format_oom_restart_query(
        self, labels: ContainerLabels, window: LookbackWindow, pods: PodSelector
    ) -> str:
        """Format the same query by restarts of containers that were last terminated as OOMKilled."""
        matchers = (*labels.build_matchers(pods), *self.required_matchers)
        restarts = f"increase({format_selector(RESTARTS, matchers)}[{format_duration(window.ooms)}])"
        killed = format_selector(LAST_REASON, (*matchers, equals("reason", "OOMKilled")))
        return f"max by ({labels.group_by}) ({restarts}) > 0 and max by ({labels.group_by}) ({killed}) > 0"

    def _format_selector(self, metric: str, labels: ContainerLabels, pods: PodSelector | None) -> str:
        return format_selector(metric, self.build_matchers(labels, pods))


def _max_by_container(expression: str, labels: ContainerLabels) -> str:
    return f"max by ({labels.group_by}) ({expression})"
