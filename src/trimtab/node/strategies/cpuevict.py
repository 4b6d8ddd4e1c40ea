"""CPU evict: best-effort pods that are starved of CPU are sent away, so that they can run elsewhere.

    satisfaction = what the tier may have / what its pods request

Evicts when satisfaction is no more than the lower percent while the pods, over the cool-down or the last minute of it, use
nearly all that they may have; so many that the rest is satisfied to the upper percent. What the tier may have is its real limit (its quota
or CPUs, whichever is less), or what the other pods' requests leave of what is allocatable.
"""

from __future__ import annotations

import math
from typing import ClassVar

from trimtab.api.errors import QuantityError
from trimtab.api.nodeqospolicy import CPUEvict, CPUEvictPolicy
from trimtab.api.quantity import millicores
from trimtab.node.cgroups import UNLIMITED
from trimtab.node.cgroups.knobs import CPU_PERIOD, CPU_QUOTA, CPUSET_EFFECTIVE
from trimtab.node.picture import BEST_EFFORT, Metric, PodView, Tier, pod_subject
from trimtab.node.strategies.evicting import Choice
from trimtab.node.strategies.strategy import NOTHING, Eviction, Plan, Scene

REQUEST_ANNOTATION = "trimtab.io/cpu-request"
"""What a pod of Kubernetes' class BestEffort, which has no requests, would like to have."""
LONGEST_LOOK = 60.0
"""Seconds that are surely kept of the near past: of a longer cool-down it would know too little for ever."""


def request(pod: PodView) -> float:
    """Cores that a pod asks for."""
    if pod.resources.cpu_request:
        return pod.resources.cpu_request / 1000
    try:
        return millicores(dict(pod.annotations).get(REQUEST_ANNOTATION, "0")) / 1000
    except QuantityError:
        return 0.0


class CpuEvict:
    """Remembers what its choice does."""

    name: ClassVar[str] = "cpuevict"
    settings_type: ClassVar[type[CPUEvict]] = CPUEvict

    def __init__(self) -> None:
        self._choice = Choice()

    def plan(self, scene: Scene) -> Plan:
        settings, pods = scene.policy.cpu_evict, scene.view.of_tier(Tier.BE)
        if not settings.enable:
            self._choice = Choice()
            return NOTHING
        asked, limit = sum(map(request, pods)), self._limit(scene)
        used = scene.windows.average(BEST_EFFORT, Metric.CPU, min(settings.cool_down_seconds, LONGEST_LOOK))
        if not asked or limit is None or used is None:
            return NOTHING
        starved = limit <= asked * settings.satisfaction_lower_percent / 100
        if not starved or used < limit * settings.usage_threshold_percent / 100:
            return NOTHING
        why = f"best-effort pods get {limit:.2f} of {asked:.2f} cores that they request, and use {used:.2f}"
        chosen = self._choice.victims(
            scene,
            used=lambda pod: scene.windows.latest(pod_subject(pod.uid), Metric.CPU) or 0.0,
            freed=request,
            need=asked - limit * 100 / settings.satisfaction_upper_percent,
            cool_down=settings.cool_down_seconds,
            patience=math.inf,  # who is leaving asks for nothing, however long he takes
        )
        return Plan(evictions=tuple(Eviction(pod, self.name, why) for pod in chosen))

    def _limit(self, scene: Scene) -> float | None:
        """Cores that the tier may have."""
        view = scene.view
        if scene.policy.cpu_evict.policy is CPUEvictPolicy.EVICT_BY_ALLOCATABLE:
            if view.allocatable_cpu is None:
                return None
            taken = sum(pod.resources.cpu_request or 0 for pod in view.of_tier(Tier.LSR, Tier.LS))
            return max(view.allocatable_cpu - taken, 0) / 1000
        tier = view.best_effort_cgroup
        cpus = scene.held_as(frozenset, tier, CPUSET_EFFECTIVE)
        cores = float(len(cpus) if cpus else len(view.cpus))
        quota = scene.held_as(int, tier, CPU_QUOTA)
        period = scene.held_as(int, tier, CPU_PERIOD)
        return cores if quota in (None, UNLIMITED) or not period else min(cores, quota / period)
