"""How many workloads each policy looks after, has brought to their size, and leaves alone: the gauges of `metrics`.

They are counted anew for a policy whenever its outcomes have changed. What no longer exists is taken out, so that a
policy or a namespace that is gone does not stand in a dashboard for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client import Gauge

from trimtab.api.optimizationpolicy import WorkloadState
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.status import Outcome

Labels = tuple[str, ...]


class Tally:
    """The gauges of all policies."""

    def __init__(self, metrics: Metrics) -> None:
        self._monitored = metrics.workloads_monitored
        self._updated = metrics.workloads_updated
        self._skipped = metrics.workloads_skipped
        self._shown: dict[str, dict[Gauge, set[Labels]]] = {}

    def count(self, policy: str, outcomes: Iterable[tuple[WorkloadKey, Outcome]]) -> None:
        """Show how a policy's workloads fare; none at all takes it out."""
        counts: dict[Gauge, Counter[Labels]] = {
            gauge: Counter() for gauge in (self._monitored, self._updated, self._skipped)
        }
        for key, outcome in outcomes:
            counts[self._monitored][key.namespace, policy] += 1
            counts[self._updated][key.namespace, policy] += outcome.state is WorkloadState.APPLIED
            if outcome.state is WorkloadState.SKIPPED:
                counts[self._skipped][key.namespace, policy, outcome.skipped.value] += 1
        before = self._shown.pop(policy, {})
        for gauge, found in counts.items():
            for labels in before.get(gauge, set()) - found.keys():
                gauge.remove(*labels)
            for labels, number in found.items():
                gauge.labels(*labels).set(number)
        if counts[self._monitored]:
            self._shown[policy] = {gauge: set(found) for gauge, found in counts.items()}

    def clear(self) -> None:
        """Show nothing more: another leads, and counts."""
        for policy in list(self._shown):
            self.count(policy, ())
