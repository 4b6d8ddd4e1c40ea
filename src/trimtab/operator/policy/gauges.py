"""Gauges for the number of workloads that each policy selects, has applied, and skips.

They are updated whenever a policy's outcomes change. Series of deleted policies and namespaces are removed, so that they
do not stay in dashboards forever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client import Gauge

from trimtab.api.optimizationpolicy import WorkloadState
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.status import WorkloadOutcome

LabelValues = tuple[str, ...]


class WorkloadGauges:
    """The gauges of all policies."""

    def __init__(self, metrics: Metrics) -> None:
        self._monitored = metrics.workloads_monitored
        self._updated = metrics.workloads_updated
        self._skipped = metrics.workloads_skipped
        self._exported: dict[str, dict[Gauge, set[LabelValues]]] = {}

    def update(self, policy: str, outcomes: Iterable[tuple[WorkloadKey, WorkloadOutcome]]) -> None:
        """Set the gauges for a policy's workloads; without any, remove its series."""
        counts: dict[Gauge, Counter[LabelValues]] = {
            gauge: Counter() for gauge in (self._monitored, self._updated, self._skipped)
        }
        for key, outcome in outcomes:
            counts[self._monitored][key.namespace, policy] += 1
            counts[self._updated][key.namespace, policy] += outcome.state is WorkloadState.APPLIED
            if outcome.state is WorkloadState.SKIPPED:
                counts[self._skipped][key.namespace, policy, outcome.skip_reason.value] += 1
        before = self._exported.pop(policy, {})
        for gauge, found in counts.items():
            for labels in before.get(gauge, set()) - found.keys():
                gauge.remove(*labels)
            for labels, number in found.items():
                gauge.labels(*labels).set(number)
        if counts[self._monitored]:
            self._exported[policy] = {gauge: set(found) for gauge, found in counts.items()}

    def clear(self) -> None:
        """Remove all series: the new leader reports them."""
        for policy in list(self._exported):
            self.update(policy, ())
