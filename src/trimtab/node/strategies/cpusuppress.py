"""CPU suppress: best-effort pods get the CPU that is safe, which is what the others leave below a threshold.

    safe = capacity · threshold - used by all other pods - max(used by the system, reserved), at least capacity · minimum

By quota: no less than 2 ms a period; a change under 1 % of the node is none; growth is at most 10 % of the node a
round. By cpuset: no less than 2 CPUs, growth at most 10 % of the CPUs a round, spread over NUMA nodes with threads of a
core together, and none that a pod has for itself or the kernel keeps apart. It shrinks at once. Pods that Kubernetes
calls BestEffort have a cgroup together; a best-effort pod by label that lies elsewhere is held to the same value by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from trimtab.api.nodeqospolicy import CPUSuppress, CPUSuppressPolicy
from trimtab.node.arbiter import Bound, Precedence, Spot, Value, Wish
from trimtab.node.cgroups import QosClass
from trimtab.node.cgroups.knobs import CPU_PERIOD, CPU_QUOTA, CPUSET_CPUS
from trimtab.node.picture import (
    SYSTEM,
    ContainerView,
    Cpu,
    Metric,
    NodeView,
    PodView,
    Tier,
    Windows,
    pod_subject,
)
from trimtab.node.strategies.cpuset import by_turns
from trimtab.node.strategies.strategy import NOTHING, Plan, Scene

LEAST_QUOTA = 2000
LEAST_CPUS = 2
SMALLEST_CHANGE = 0.01
GROWTH = 0.1


@dataclass(frozen=True, slots=True)
class Safe:
    """How much is safe, and the numbers that it came from, in cores."""

    cores: float
    capacity: int
    others: float
    system: float
    is_all: bool
    """Whether the usage of every other pod is known; else it is no more than this that is safe."""

    def __str__(self) -> str:
        return f"{self.cores:.2f} of {self.capacity} cores: others use {self.others:.2f}, the system {self.system:.2f}"


def safe(view: NodeView, windows: Windows, settings: CPUSuppress) -> Safe | None:
    """What best-effort pods may have; None while nothing is known of the system."""
    capacity = len(view.cpus)
    used = [windows.latest(pod_subject(pod.uid), Metric.CPU) for pod in view.of_tier(Tier.LSR, Tier.LS)]
    system = windows.latest(SYSTEM, Metric.CPU)
    known = [each for each in used if each is not None]
    if system is None:
        return None
    reserved = 0.0 if view.allocatable_cpu is None else capacity - view.allocatable_cpu / 1000
    others, kept = sum(known), max(system, reserved)
    left = capacity * settings.threshold_percent / 100 - others - kept
    least = capacity * settings.min_percent / 100
    return Safe(max(left, least), capacity, others, kept, is_all=len(known) == len(used))


def next_quota(cores: float, *, capacity: int, period: int, last: int | None) -> int:
    """The quota that follows the last one (None: there was no limit)."""
    node = capacity * period
    wanted = max(int(cores * period), LEAST_QUOTA)
    if last is None:
        return wanted
    if abs(wanted - last) < node * SMALLEST_CHANGE:
        return last
    return min(wanted, last + int(node * GROWTH))


def next_count(cores: float, *, capacity: int, last: int | None) -> int:
    """How many CPUs follow the last number."""
    wanted = min(max(math.ceil(cores), LEAST_CPUS), capacity)
    return wanted if last is None else min(wanted, last + math.ceil(capacity * GROWTH))


class CpuSuppress:
    """Remembers what it last asked for, from which it may grow only so fast."""

    name: ClassVar[str] = "cpusuppress"
    settings_type: ClassVar[type[CPUSuppress]] = CPUSuppress

    def __init__(self) -> None:
        self._policy: CPUSuppressPolicy | None = None
        self._last: int | None = None
        self._why = ""

    def plan(self, scene: Scene) -> Plan:
        settings = scene.policy.cpu_suppress
        if not settings.enable:
            self._policy = self._last = None
            return NOTHING
        if settings.policy is not self._policy:
            self._policy, self._last = settings.policy, None
        found = safe(scene.view, scene.windows, settings)
        if found is not None:
            wanted = self._next(found, scene)
            # On a node where pods come every second one is always unknown: it is a reason to give no more.
            if found.is_all or self._last is None or wanted < self._last:
                self._last, self._why = wanted, str(found)
        if self._last is None:
            return NOTHING
        return Plan(self._wishes(scene, self._last))

    def _next(self, found: Safe, scene: Scene) -> int:
        if self._policy is CPUSuppressPolicy.CPUSET:
            return next_count(found.cores, capacity=found.capacity, last=self._last)
        return next_quota(found.cores, capacity=found.capacity, period=_period(scene), last=self._last)

    def _wishes(self, scene: Scene, amount: int) -> tuple[Wish, ...]:
        view, by_cpuset = scene.view, self._policy is CPUSuppressPolicy.CPUSET
        knob = CPUSET_CPUS if by_cpuset else CPU_QUOTA
        value: Value = frozenset(by_turns(_shared(scene))[:amount]) if by_cpuset else amount
        elsewhere = [
            pod.cgroup
            for pod in view.of_tier(Tier.BE)
            if not pod.cgroup.startswith(f"{view.best_effort_cgroup}/")
        ]
        return tuple(
            Wish(
                spot=Spot(path, knob),
                value=value,
                bound=Bound.AT_MOST,
                precedence=Precedence.SAFETY,
                strategy=self.name,
                why=self._why,
            )
            for path in (view.best_effort_cgroup, *elsewhere)
        )


def _shared(scene: Scene) -> list[Cpu]:
    """The CPUs that neither the kernel keeps apart nor a pod has for itself, as far as enough are left.

    First those that a kubelet gave away; else, the fewer CPUs somebody has, the more they are his own: a container beside
    one with CPUs of its own has all others.
    """
    view = scene.view
    left = frozenset(cpu.id for cpu in view.cpus if not cpu.isolated)
    owned = (
        (not is_given, scene.held_as(frozenset, container.cgroup, CPUSET_CPUS) or frozenset[int]())
        for pod in view.of_tier(Tier.LSR, Tier.LS)
        for container in pod.containers
        if (is_given := _is_given_cpus(pod, container)) or pod.tier is Tier.LSR
    )
    for _, own in sorted(owned, key=lambda each: (each[0], len(each[1]), sorted(each[1]))):
        left = left - own if len(left - own) >= LEAST_CPUS else left
    return [cpu for cpu in view.cpus if cpu.id in left] if len(left) >= LEAST_CPUS else list(view.cpus)


def _is_given_cpus(pod: PodView, container: ContainerView) -> bool:
    """Whether a kubelet that gives CPUs away (its policy static) gives some to this container alone."""
    request = container.resources.cpu_request or 0
    return pod.qos is QosClass.GUARANTEED and request > 0 and request % 1000 == 0


def _period(scene: Scene) -> int:
    return scene.held_as(int, scene.view.best_effort_cgroup, CPU_PERIOD) or 100_000
