"""Memory evict: best-effort pods are sent away before the node runs out of memory and the kernel chooses for us.

At the threshold, down to the lower percent: the least important first, and of those the greatest.
"""

from __future__ import annotations

from typing import ClassVar

from trimtab.api.nodeqospolicy import MemoryEvict as Settings
from trimtab.node.picture import NODE, Metric, PodView, pod_subject
from trimtab.node.strategies.evicting import CoolDown, victims
from trimtab.node.strategies.strategy import NOTHING, Eviction, Plan, Scene


class MemoryEvict:
    """Remembers when it last evicted."""

    name: ClassVar[str] = "memoryevict"
    settings_type: ClassVar[type[Settings]] = Settings

    def __init__(self) -> None:
        self._cool_down = CoolDown()

    def plan(self, scene: Scene) -> Plan:
        settings, used = scene.policy.memory_evict, scene.windows.latest(NODE, Metric.MEMORY)
        if not settings.enable or used is None or used < scene.view.memory * settings.threshold_percent / 100:
            return NOTHING
        if not self._cool_down.is_over(scene.now, settings.cool_down_seconds):
            return NOTHING

        def of(pod: PodView) -> float:
            return scene.windows.latest(pod_subject(pod.uid), Metric.MEMORY) or 0.0

        need = used - scene.view.memory * settings.release_to_percent / 100
        chosen = victims(scene, used=of, freed=of, need=need)
        if chosen:
            self._cool_down.start(scene.now)
        why = (
            f"{100 * used / scene.view.memory:.0f} % of the node's memory is used, "
            f"and it is to be {settings.release_to_percent} %"
        )
        return Plan(evictions=tuple(Eviction(pod, self.name, why) for pod in chosen))
