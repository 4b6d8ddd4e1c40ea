"""Memory evict: best-effort pods are sent away before the node runs out of memory and the kernel chooses for us.

At the threshold, down to the lower percent: the least important first, and of those the greatest.
"""

from __future__ import annotations

from typing import ClassVar

from trimtab.api.nodeqospolicy import MemoryEvict as Settings
from trimtab.node.picture import NODE, Metric, PodView, pod_subject
from trimtab.node.strategies.evicting import Choice
from trimtab.node.strategies.strategy import NOTHING, Eviction, Plan, Scene

LEAVES_SECONDS = 60.0
"""For so long who is leaving counts as gone: from then on he may be stuck, and what he has is not coming back."""


class MemoryEvict:
    """Remembers what its choice does."""

    name: ClassVar[str] = "memoryevict"
    settings_type: ClassVar[type[Settings]] = Settings

    def __init__(self) -> None:
        self._choice = Choice()

    def plan(self, scene: Scene) -> Plan:
        settings, used = scene.policy.memory_evict, scene.windows.latest(NODE, Metric.MEMORY)
        if not settings.enable:
            self._choice = Choice()
            return NOTHING
        if used is None or used < scene.view.memory * settings.threshold_percent / 100:
            return NOTHING

        def of(pod: PodView) -> float:
            return scene.windows.latest(pod_subject(pod.uid), Metric.MEMORY) or 0.0

        need = used - scene.view.memory * settings.release_to_percent / 100
        chosen = self._choice.victims(
            scene,
            used=of,
            freed=of,
            need=need,
            cool_down=settings.cool_down_seconds,
            patience=LEAVES_SECONDS,
        )
        why = (
            f"{100 * used / scene.view.memory:.0f} % of the node's memory is used, "
            f"and it is to be {settings.release_to_percent} %"
        )
        return Plan(evictions=tuple(Eviction(pod, self.name, why) for pod in chosen))
