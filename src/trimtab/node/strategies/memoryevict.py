"""Memory evict: evict best-effort pods before the node runs out of memory and the kernel kills one.

At the threshold, pods are evicted down to the lower percentage, the least important and largest first. None
is evicted if all of them together would not bring the node below the threshold: the memory is not theirs, and
returning pods would be evicted again and again.
"""

from __future__ import annotations

from typing import ClassVar

from trimtab.api.nodeqospolicy import MemoryEvictSpec as Settings
from trimtab.node.model import NODE, Metric, PodView, Tier, pod_subject
from trimtab.node.strategies.eviction_order import EvictionSelector
from trimtab.node.strategies.strategy import NO_OUTPUT, Eviction, StrategyInput, StrategyOutput

TERMINATION_SECONDS = 60.0
"""The seconds for which a terminating pod counts as gone; after that it may be stuck."""
TOO_LITTLE_EVICTABLE = (
    "the node's memory is above memoryEvict.thresholdPercent, and all best-effort pods that can be evicted use too little memory"
    " to bring it below; none is evicted, check what else uses the node's memory"
)


def read_memory_usage(inputs: StrategyInput, pod: PodView) -> float:
    """Return the memory of a pod in bytes."""
    return inputs.windows.latest(pod_subject(pod.uid), Metric.MEMORY) or 0.0


class MemoryEvict:
    """Remembers its evictions."""

    name: ClassVar[str] = "memoryevict"
    settings_type: ClassVar[type[Settings]] = Settings

    def __init__(self) -> None:
        self._selector = EvictionSelector(read_memory_usage, leaving_timeout=TERMINATION_SECONDS)

    def plan(self, inputs: StrategyInput) -> StrategyOutput:
        settings, used = inputs.policy.memory_evict, inputs.windows.latest(NODE, Metric.MEMORY)
        if not settings.enable:
            self._selector.reset()
            return NO_OUTPUT
        threshold = inputs.view.memory * settings.threshold_percent / 100
        if used is None or used < threshold:
            return NO_OUTPUT
        pods = inputs.view.pods_in_tier(Tier.BE)
        if self._selector.estimate_reclaimable(inputs, pods) <= used - threshold:
            return StrategyOutput(unsupported=(TOO_LITTLE_EVICTABLE,))
        chosen = self._selector.select_victims(
            inputs,
            pods,
            used=lambda pod: read_memory_usage(inputs, pod),
            need=used - inputs.view.memory * settings.release_to_percent / 100,
            cool_down=settings.cool_down_seconds,
        )
        reason = (
            f"{100 * used / inputs.view.memory:.0f} % of the node's memory is used, "
            f"and evictions go on until it is {settings.release_to_percent} %"
        )
        return StrategyOutput(evictions=tuple(Eviction(pod, self.name, reason) for pod in chosen))
