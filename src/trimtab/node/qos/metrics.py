"""What the acting half of the agent counts: the names that dashboards and alerts rely on."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter


class QosMetrics:
    """One agent's counters, in its registry. What a dry run would have done has names of its own."""

    def __init__(self, registry: CollectorRegistry, *, dry_run: bool = False) -> None:
        deed = "dry_run_" if dry_run else ""

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"trimtab_node_{name}", what, labels, registry=registry)

        self.overruled = counter(
            "wishes_overruled_total", "Wishes that yielded to a stronger one", "strategy"
        )
        self.rejected = counter("writes_refused_total", "Values that arbiter or kernel did not take", "knob")
        self.written = counter(f"{deed}writes_total", "Values written", "knob")
        self.restored = counter(
            f"{deed}restored_total", "Knobs that hold again what they held before us", "knob"
        )
        self.evictions = counter(
            f"{deed}evictions_total", "Pods sent away, by strategy and outcome", "strategy", "result"
        )
        self.failures = counter("strategy_failures_total", "Rounds that a strategy failed in", "strategy")
