"""Memory evict: best-effort pods are sent away before the node runs out of memory and the kernel chooses for us.

At the threshold, down to the lower percent: the least important first, and of those the greatest. Nobody where all of
them together would not bring the node below the threshold: what fills it is not theirs, and pods that come back would be
sent away again and again.
"""

from __future__ import annotations

from typing import ClassVar

from trimtab.api.nodeqospolicy import MemoryEvictSpec as Settings
from trimtab.node.model import NODE, Metric, PodView, Tier, pod_subject
from trimtab.node.strategies.eviction_order import EvictionSelector
from trimtab.node.strategies.strategy import NO_OUTPUT, Eviction, StrategyInput, StrategyOutput

TERMINATION_SECONDS = 60.0
"""For so long who is leaving counts as gone: from then on he may be stuck, and what he has is not coming back."""
TOO_LITTLE_EVICTABLE = (
    "the node's memory is above memoryEvict.thresholdPercent, and all best-effort pods that can be evicted hold too little"
    " to bring it below: none is evicted; look for what else fills the node"
)


def read_memory_usage(inputs: StrategyInput, pod: PodView) -> float:
    """Bytes that a pod has."""
    return inputs.windows.latest(pod_subject(pod.uid), Metric.MEMORY) or 0.0


class MemoryEvict:
    """Remembers what its choice does."""

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
        why = (
            f"{100 * used / inputs.view.memory:.0f} % of the node's memory is used, "
            f"and it is to be {settings.release_to_percent} %"
        )
        return StrategyOutput(evictions=tuple(Eviction(pod, self.name, why) for pod in chosen))
