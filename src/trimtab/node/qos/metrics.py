"""The metrics of the acting half of the agent, which dashboards and alerts use."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter


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
