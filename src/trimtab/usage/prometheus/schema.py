"""How a server names containers, and the queries for what they use.

The kubelet's names changed over the years, scrape configurations rename them, and one series may be there several
times: scraped by two jobs, kept by two replicas of Prometheus, or of a container's former run. So labels are looked
at before anything is asked, and of several series of one container the highest counts, never the sum. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from trimtab.usage.prometheus.pod_selector import Pods
from trimtab.usage.prometheus.promql import Matchers, differs, equals, like, one_of, selector, span

CPU = "container_cpu_usage_seconds_total"
MEMORY = "container_memory_working_set_bytes"
PERIODS = "container_cpu_cfs_periods_total"
THROTTLED = "container_cpu_cfs_throttled_periods_total"
OOM_EVENTS = "container_oom_events_total"
RESTARTS = "kube_pod_container_status_restarts_total"
LAST_REASON = "kube_pod_container_status_last_terminated_reason"
MACHINE_CORES = "machine_cpu_cores"
MACHINE_MEMORY = "machine_memory_bytes"

SCRAPES = 4
"""Over how many a rate is taken: some are missed, and two must be there."""
_STATES_INTERVAL = 60.0
"""Seconds: kube-state-metrics is often scraped less than kubelets are."""

JOB = "job"
"""The label with which Prometheus marks all that one scrape configuration finds."""

Kind = Literal["cpu", "memory", "throttled", "oom"]
KINDS: frozenset[Kind] = frozenset(get_args(Kind))


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels that name a container."""

    namespace: str
    pod: str
    container: str
    jobs: tuple[str, ...] = ()
    """The scrape jobs whose series have these labels; empty where those of all jobs do."""

    @property
    def key(self) -> str:
        return f"{self.namespace}, {self.pod}, {self.container}"

    def matchers(self, pods: Pods | None = None) -> Matchers:
        """Real containers, of these pods or of all: not a pod's own cgroup, nor the one that holds it open."""
        return (
            *((one_of(JOB, self.jobs),) if self.jobs else ()),
            differs(self.namespace, "") if pods is None else one_of(self.namespace, pods.namespaces),
            differs(self.pod, "") if pods is None or pods.all else like(self.pod, pods.pattern),
            differs(self.container, ""),
            differs(self.container, "POD"),
        )


SCHEMES = (
    # A scrape that puts its own pod and container on every series pushes the kubelet's aside,
    Labels("exported_namespace", "exported_pod", "exported_container"),
    # and on the series of a cAdvisor that runs as a pod they are the cAdvisor's.
    Labels(
        "container_label_io_kubernetes_pod_namespace",
        "container_label_io_kubernetes_pod_name",
        "container_label_io_kubernetes_container_name",
    ),
    Labels("namespace", "pod", "container"),
    Labels("namespace", "pod_name", "container_name"),
    Labels("kubernetes_namespace", "kubernetes_pod_name", "container_name"),
)


def recognise(present: Collection[str]) -> Labels | None:
    """The scheme of series that have these labels."""
    for scheme in SCHEMES:
        if {scheme.namespace, scheme.pod, scheme.container} <= set(present):
            return scheme
    return None


@dataclass(frozen=True, slots=True)
class Window:
    """How far back each step looks, in seconds."""

    rate: float
    """For counters: two samples must lie in it."""
    gauge: float
    """For gauges: one must."""
    kills: float
    """For what is counted one by one: with the window before it must share a sample, or what came between is in neither."""

    @classmethod
    def of(cls, *, step: float, interval: float, wished: float = 0.0) -> Window:
        """A step, unless that is too short for samples that come every `interval` seconds."""
        rate = wished or max(step, SCRAPES * interval)
        return cls(
            rate=rate,
            gauge=max(step, 2 * interval),
            kills=max(rate, step + 2 * max(interval, _STATES_INTERVAL)),
        )

    def partly(self, step: float) -> int:
        """In how many steps from a counter's first sample on the window is not yet full of them."""
        return max(1, math.ceil(self.rate / step - 1e-6) - 1)


@dataclass(frozen=True, slots=True)
class Question:
    """A query for one kind of number, and the labels by which its answers name containers."""

    kind: Kind
    labels: Labels
    promql: Callable[[Pods], str]


@dataclass(frozen=True, slots=True)
class Scheme:
    """Where a server has what: labels of the kubelet's series and of kube-state-metrics', and the series there are."""

    labels: tuple[Labels, ...]
    """How the kubelet's series name containers. Scrape jobs may differ in that: each is asked for by its own labels."""
    state_labels: tuple[Labels, ...]
    metrics: frozenset[str]
    required: Matchers
    """What every series must match besides."""
    cpu_rule: str | None = None
    memory_rule: str | None = None

    @property
    def cpu(self) -> bool:
        return (self.cpu_rule or CPU) in self.metrics

    @property
    def throttling(self) -> bool:
        return {PERIODS, THROTTLED} <= self.metrics

    @property
    def ooms(self) -> bool:
        return OOM_EVENTS in self.metrics or self._has_states

    @property
    def _has_states(self) -> bool:
        return bool(self.state_labels) and {RESTARTS, LAST_REASON} <= self.metrics

    def questions(self, window: Window) -> Iterator[Question]:
        """All that can be asked."""
        for labels in self.labels:
            yield Question("cpu", labels, partial(self._cpu, labels, window))
            yield Question("memory", labels, partial(self._memory, labels, window))
            if self.throttling:
                yield Question("throttled", labels, partial(self._throttled, labels, window))
            # The kubelet's count of kills dies with the container it is of, so kube-state-metrics is asked too.
            if OOM_EVENTS in self.metrics:
                yield Question("oom", labels, partial(self._oom_events, labels, window))
        for labels in self.state_labels if self._has_states else ():
            yield Question("oom", labels, partial(self._oom_restarts, labels, window))

    def matchers(self, labels: Labels, pods: Pods | None) -> Matchers:
        """What the kubelet's series of these pods must match, or those of all, where they have such labels."""
        return (*labels.matchers(pods), *self.required)

    def memory_series(self, labels: Labels, pods: Pods | None = None) -> str:
        return self._selected(self.memory_rule or MEMORY, labels, pods)

    def sampled(self, pods: Pods | None) -> Iterator[str]:
        """The series by which it is told how often samples come: a rule is made at its own pace, whatever it is made of."""
        for labels in self.labels:
            yield self.memory_series(labels, pods)
            if self.cpu_rule or self.memory_rule:
                yield self._selected(self.cpu_rule or CPU, labels, pods)

    def number_of_containers(self, labels: Labels, pods: Pods | None, over: float) -> str:
        """How many containers each namespace has."""
        there = _highest(f"last_over_time({self.memory_series(labels, pods)}[{span(over)}])", labels)
        return f"count by ({labels.namespace}) ({there})"

    def _cpu(self, labels: Labels, window: Window, pods: Pods) -> str:
        """Cores. PromQL's rate sees a counter's resets; without two samples in the window it says nothing."""
        if self.cpu_rule:
            rule = self._selected(self.cpu_rule, labels, pods)
            return _highest(f"avg_over_time({rule}[{span(window.gauge)}])", labels)
        counter = self._selected(CPU, labels, pods)
        # An old kubelet has a series for each processor instead of one for all.
        return _highest(f"sum without (cpu) (rate({counter}[{span(window.rate)}]))", labels)

    def _memory(self, labels: Labels, window: Window, pods: Pods) -> str:
        """Bytes: the highest of a step, so that a long step hides no peak."""
        return _highest(f"max_over_time({self.memory_series(labels, pods)}[{span(window.gauge)}])", labels)

    def _throttled(self, labels: Labels, window: Window, pods: Pods) -> str:
        """The share of CFS periods."""
        over = span(window.rate)
        held, all_periods = (self._selected(metric, labels, pods) for metric in (THROTTLED, PERIODS))
        return _highest(f"rate({held}[{over}]) / rate({all_periods}[{over}])", labels)

    def _oom_events(self, labels: Labels, window: Window, pods: Pods) -> str:
        """A sample at each step within whose window the kernel killed something in a container."""
        events = self._selected(OOM_EVENTS, labels, pods)
        return _highest(f"increase({events}[{span(window.kills)}])", labels) + " > 0"

    def _oom_restarts(self, labels: Labels, window: Window, pods: Pods) -> str:
        """The same where a container came back and had last ended so."""
        matchers = (*labels.matchers(pods), *self.required)
        restarts = f"increase({selector(RESTARTS, matchers)}[{span(window.kills)}])"
        killed = selector(LAST_REASON, (*matchers, equals("reason", "OOMKilled")))
        return f"max by ({labels.key}) ({restarts}) > 0 and max by ({labels.key}) ({killed}) > 0"

    def _selected(self, metric: str, labels: Labels, pods: Pods | None) -> str:
        return selector(metric, self.matchers(labels, pods))


def _highest(expression: str, labels: Labels) -> str:
    return f"max by ({labels.key}) ({expression})"
