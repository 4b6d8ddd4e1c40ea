"""Memory evict: best-effort pods are sent away before the node runs out of memory and the kernel chooses for us.

At the threshold, down to the lower percent: the least important first, and of those the greatest. Nobody where all of
them together would not bring the node below the threshold: what fills it is not theirs, and pods that come back would be
sent away again and again.
"""

from __future__ import annotations

from typing import ClassVar

from trimtab.api.nodeqospolicy import MemoryEvict as Settings
from trimtab.node.model import NODE, Metric, PodView, Tier, pod_subject
from trimtab.node.strategies.eviction_order import Choice
from trimtab.node.strategies.strategy import NOTHING, Eviction, Plan, Scene

LEAVES_SECONDS = 60.0
"""For so long who is leaving counts as gone: from then on he may be stuck, and what he has is not coming back."""
IN_VAIN = (
    "the node's memory is above memoryEvict.thresholdPercent, and all best-effort pods that can be evicted hold too little"
    " to bring it below: none is evicted; look for what else fills the node"
)


def used_by(scene: Scene, pod: PodView) -> float:
    """Bytes that a pod has."""
    return scene.windows.latest(pod_subject(pod.uid), Metric.MEMORY) or 0.0


class MemoryEvict:
    """Remembers what its choice does."""

    name: ClassVar[str] = "memoryevict"
    settings_type: ClassVar[type[Settings]] = Settings

    def __init__(self) -> None:
        self._choice = Choice(used_by, patience=LEAVES_SECONDS)

    def plan(self, scene: Scene) -> Plan:
        settings, used = scene.policy.memory_evict, scene.windows.latest(NODE, Metric.MEMORY)
        if not settings.enable:
            self._choice.reset()
            return NOTHING
        threshold = scene.view.memory * settings.threshold_percent / 100
        if used is None or used < threshold:
            return NOTHING
        pods = scene.view.of_tier(Tier.BE)
        if self._choice.reach(scene, pods) <= used - threshold:
            return Plan(lacking=(IN_VAIN,))
        chosen = self._choice.victims(
            scene,
            pods,
            used=lambda pod: used_by(scene, pod),
            need=used - scene.view.memory * settings.release_to_percent / 100,
            cool_down=settings.cool_down_seconds,
        )
        why = (
            f"{100 * used / scene.view.memory:.0f} % of the node's memory is used, "
            f"and it is to be {settings.release_to_percent} %"
        )
        return Plan(evictions=tuple(Eviction(pod, self.name, why) for pod in chosen))
