"""What the acting half of the agent counts: the names that dashboards and alerts rely on."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter


class Tally:
    """One agent's counters, in its registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"trimtab_node_{name}", what, labels, registry=registry)

        self.overruled = counter(
            "wishes_overruled_total", "Wishes that yielded to a stronger one", "strategy"
        )
        self.refused = counter("writes_refused_total", "Values that arbiter or kernel did not take", "knob")
        self.written = counter("writes_total", "Values written", "knob")
        self.restored = counter("restored_total", "Knobs that hold again what they held before us", "knob")
        self.evictions = counter(
            "evictions_total", "Pods sent away, by strategy and outcome", "strategy", "result"
        )
        self.failures = counter("strategy_failures_total", "Rounds that a strategy failed in", "strategy")
