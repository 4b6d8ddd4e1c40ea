"""CPU evict: best-effort pods that are starved of CPU are sent away, so that they can run elsewhere.

    satisfaction = what the tier may have / what its pods request

Evicts when satisfaction is no more than the lower percent while the pods use nearly all that they may have; so many that
the rest is satisfied to the upper percent. All three numbers are averages over one window, and those of this moment have
to say the same: a second in which production was busy is no starvation, nor is one that is over. What the tier may have
is its real limit (its quota or CPUs, whichever is less), or what the other pods' requests leave of what is allocatable. The
latter limits nobody, so only pods that work count as asking for it: an idle pod lacks nothing.
"""

from __future__ import annotations

import math
from collections import deque
from typing import ClassVar, NamedTuple

from trimtab.api.errors import QuantityError
from trimtab.api.nodeqospolicy import CPUEvict, CPUEvictPolicy
from trimtab.api.quantity import millicores
from trimtab.node.cgroups import UNLIMITED
from trimtab.node.cgroups.knobs import CPU_PERIOD, CPU_QUOTA, CPUSET_EFFECTIVE
from trimtab.node.model import BEST_EFFORT, Metric, PodView, Tier, pod_subject
from trimtab.node.strategies.eviction_order import Choice
from trimtab.node.strategies.strategy import NOTHING, Eviction, Plan, Scene

REQUEST_ANNOTATION = "trimtab.io/cpu-request"
"""What a pod of Kubernetes' class BestEffort, which has no requests, would like to have."""
SHORTEST_WINDOW, LONGEST_WINDOW = 20.0, 60.0
"""Seconds. In less no starvation shows; more is not surely kept of the near past, and would never be known."""
IDLE = 0.1
"""A pod that uses less than this share of its request is idle."""


def request(pod: PodView) -> float:
    """Cores that a pod asks for."""
    if pod.resources.cpu_request:
        return pod.resources.cpu_request / 1000
    try:
        return millicores(dict(pod.annotations).get(REQUEST_ANNOTATION, "0")) / 1000
    except QuantityError:
        return 0.0


class Share(NamedTuple):
    """What the tier asks for, may have and uses, in cores: at a moment, or on average."""

    asked: float
    limit: float
    used: float

    def lacking(self, settings: CPUEvict) -> float:
        """Return the cores of requests that have to go for the rest to be satisfied; 0 while nobody is starved."""
        starved = self.limit <= self.asked * settings.satisfaction_lower_percent / 100
        if not starved or self.used < self.limit * settings.usage_threshold_percent / 100:
            return 0.0
        return self.asked - self.limit * 100 / settings.satisfaction_upper_percent

    def __str__(self) -> str:
        return f"{self.limit:.2f} of {self.asked:.2f} cores that they request, and use {self.used:.2f}"


class CpuEvict:
    """Remembers what the tier asked for and might have over the window, and what its choice does."""

    name: ClassVar[str] = "cpuevict"
    settings_type: ClassVar[type[CPUEvict]] = CPUEvict

    def __init__(self) -> None:
        # Who is leaving asks for nothing, however long it takes.
        self._choice = Choice(lambda _, pod: request(pod), patience=math.inf)
        self._policy: CPUEvictPolicy | None = None
        self._past: deque[tuple[float, float, float]] = deque()
        """When it was, what was asked for, and the limit."""

    def plan(self, scene: Scene) -> Plan:
        settings = scene.policy.cpu_evict
        if not settings.enable:
            self._choice.reset()
            self._past.clear()
            return NOTHING
        if settings.policy is not self._policy:  # what the other one measures is not comparable
            self._policy = settings.policy
            self._past.clear()
        window = min(max(settings.cool_down_seconds, SHORTEST_WINDOW), LONGEST_WINDOW)
        asking = [pod for pod in scene.view.of_tier(Tier.BE) if self._asks(scene, pod, window)]
        now, average = self._shares(scene, asking, window)
        if now is None or average is None:
            return NOTHING
        need = min(now.lacking(settings), average.lacking(settings))
        if need <= 0:
            return NOTHING
        chosen = self._choice.victims(
            scene,
            asking,
            used=lambda pod: scene.windows.latest(pod_subject(pod.uid), Metric.CPU) or 0.0,
            need=need,
            cool_down=settings.cool_down_seconds,
        )
        why = f"for {window:.0f} s best-effort pods got {average}"
        return Plan(evictions=tuple(Eviction(pod, self.name, why) for pod in chosen))

    def _asks(self, scene: Scene, pod: PodView, window: float) -> bool:
        if self._policy is not CPUEvictPolicy.EVICT_BY_ALLOCATABLE:
            return True  # whoever is held to a real limit may be idle because of it
        used = scene.windows.average(pod_subject(pod.uid), Metric.CPU, window)
        return used is not None and used >= request(pod) * IDLE

    def _shares(
        self, scene: Scene, asking: list[PodView], window: float
    ) -> tuple[Share | None, Share | None]:
        """Return what is so now and what was so on average over the window, as far as either is known."""
        asked, limit = sum(map(request, asking)), self._limit(scene)
        if not asked or limit is None:
            self._past.clear()
            return None, None
        self._past.append((scene.now, asked, limit))
        while scene.now - self._past[0][0] >= window:
            self._past.popleft()
        used = scene.windows.latest(BEST_EFFORT, Metric.CPU)
        average = scene.windows.average(BEST_EFFORT, Metric.CPU, window)
        if used is None or average is None or scene.now - self._past[0][0] < window / 2:
            return None, None
        _, all_asked, limits = zip(*self._past, strict=True)
        count = len(self._past)
        return Share(asked, limit, used), Share(sum(all_asked) / count, sum(limits) / count, average)

    def _limit(self, scene: Scene) -> float | None:
        """Cores that the tier may have."""
        view = scene.view
        if self._policy is CPUEvictPolicy.EVICT_BY_ALLOCATABLE:
            if view.allocatable_cpu is None:
                return None
            taken = sum(pod.resources.cpu_request or 0 for pod in view.of_tier(Tier.LSR, Tier.LS))
            return max(view.allocatable_cpu - taken, 0) / 1000
        shared, paths = scene.shared_cpus.ids, view.best_effort_cgroups
        cpus = [scene.held_as(frozenset, path, CPUSET_EFFECTIVE) or shared for path in paths]
        cores = float(len(shared & frozenset[int]().union(*cpus)))
        return min(cores, sum(_quota(scene, path) for path in paths))


def _quota(scene: Scene, path: str) -> float:
    """Return the cores that a cgroup's quota allows."""
    quota, period = scene.held_as(int, path, CPU_QUOTA), scene.held_as(int, path, CPU_PERIOD)
    return math.inf if quota is None or quota == UNLIMITED or not period else quota / period
