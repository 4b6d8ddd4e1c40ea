"""CPU evict: evict best-effort pods that are starved of CPU, so that they can run elsewhere.

    satisfaction = the tier's limit / the requests of its pods

Pods are evicted when satisfaction is at most the lower percentage while they use nearly all of the limit,
until the rest is satisfied to the upper percentage. All values are averages over a window, confirmed by the
current ones, so that a busy second is not starvation. The limit is the real one (quota or CPUs, whichever is
less), or the allocatable CPU minus the requests of other pods. The latter throttles nobody, so only busy pods
count as requesting it.
"""

from __future__ import annotations

import math
from collections import deque
from typing import ClassVar, NamedTuple

from trimtab.api.errors import QuantityError
from trimtab.api.nodeqospolicy import CPUEvictPolicy, CPUEvictSpec
from trimtab.api.quantity import parse_millicores
from trimtab.node.cgroups import UNLIMITED
from trimtab.node.cgroups.knobs import CPU_PERIOD, CPU_QUOTA, CPUSET_EFFECTIVE
from trimtab.node.model import BEST_EFFORT, Metric, PodView, Tier, pod_subject
from trimtab.node.strategies.eviction_order import EvictionSelector
from trimtab.node.strategies.strategy import NO_OUTPUT, Eviction, StrategyInput, StrategyOutput

REQUEST_ANNOTATION = "trimtab.io/cpu-request"
"""The annotation with the CPU request of a BestEffort pod, which has no requests."""
SHORTEST_WINDOW, LONGEST_WINDOW = 20.0, 60.0
"""The window in seconds: shorter shows no starvation, longer may not be in the series."""
IDLE = 0.1
"""The share of its request below which a pod is idle."""


def read_request(pod: PodView) -> float:
    """Return the cores that a pod requests."""
    if pod.resources.cpu_request:
        return pod.resources.cpu_request / 1000
    try:
        return parse_millicores(dict(pod.annotations).get(REQUEST_ANNOTATION, "0")) / 1000
    except QuantityError:
        return 0.0


class TierShare(NamedTuple):
    """The requests, limit and usage of the tier in cores, now or on average."""

    requested: float
    limit: float
    used: float

    def cores_to_evict(self, settings: CPUEvictSpec) -> float:
        """Return the cores of requests that have to go for the rest to be satisfied; 0 while nobody is starved."""
        starved = self.limit <= self.requested * settings.satisfaction_lower_percent / 100
        if not starved or self.used < self.limit * settings.usage_threshold_percent / 100:
            return 0.0
        return self.requested - self.limit * 100 / settings.satisfaction_upper_percent

    def __str__(self) -> str:
        return f"{self.limit:.2f} of {self.requested:.2f} requested cores and used {self.used:.2f}"


class CpuEvict:
    """Remembers the tier's requests and limits over the window, and its evictions."""

    name: ClassVar[str] = "cpuevict"
    settings_type: ClassVar[type[CPUEvictSpec]] = CPUEvictSpec

    def __init__(self) -> None:
        # A terminating pod requests nothing, however long it takes.
        self._selector = EvictionSelector(lambda _, pod: read_request(pod), leaving_timeout=math.inf)
        self._policy: CPUEvictPolicy | None = None
        self._history: deque[tuple[float, float, float]] = deque()
        """The time, requests and limit of each round."""

    def plan(self, inputs: StrategyInput) -> StrategyOutput:
        settings = inputs.policy.cpu_evict
        if not settings.enable:
            self._selector.reset()
            self._history.clear()
            return NO_OUTPUT
        if settings.policy is not self._policy:  # the values of the policies are not comparable
            self._policy = settings.policy
            self._history.clear()
        window = min(max(settings.cool_down_seconds, SHORTEST_WINDOW), LONGEST_WINDOW)
        asking = [
            pod for pod in inputs.view.pods_in_tier(Tier.BE) if self._is_requesting(inputs, pod, window)
        ]
        now, average = self._measure_shares(inputs, asking, window)
        if now is None or average is None:
            return NO_OUTPUT
        need = min(now.cores_to_evict(settings), average.cores_to_evict(settings))
        if need <= 0:
            return NO_OUTPUT
        chosen = self._selector.select_victims(
            inputs,
            asking,
            used=lambda pod: inputs.windows.latest(pod_subject(pod.uid), Metric.CPU) or 0.0,
            need=need,
            cool_down=settings.cool_down_seconds,
        )
        reason = f"best-effort pods got {average}, on average over {window:.0f} s"
        return StrategyOutput(evictions=tuple(Eviction(pod, self.name, reason) for pod in chosen))

    def _is_requesting(self, inputs: StrategyInput, pod: PodView, window: float) -> bool:
        if self._policy is not CPUEvictPolicy.EVICT_BY_ALLOCATABLE:
            return True  # a pod may be idle because of a real limit
        used = inputs.windows.average(pod_subject(pod.uid), Metric.CPU, window)
        return used is not None and used >= read_request(pod) * IDLE

    def _measure_shares(
        self, inputs: StrategyInput, asking: list[PodView], window: float
    ) -> tuple[TierShare | None, TierShare | None]:
        """Return the current and the average shares over the window, as far as known."""
        asked, limit = sum(map(read_request, asking)), self._read_limit(inputs)
        if not asked or limit is None:
            self._history.clear()
            return None, None
        self._history.append((inputs.now, asked, limit))
        while inputs.now - self._history[0][0] >= window:
            self._history.popleft()
        used = inputs.windows.latest(BEST_EFFORT, Metric.CPU)
        average = inputs.windows.average(BEST_EFFORT, Metric.CPU, window)
        if used is None or average is None or inputs.now - self._history[0][0] < window / 2:
            return None, None
        _, all_asked, limits = zip(*self._history, strict=True)
        count = len(self._history)
        return TierShare(asked, limit, used), TierShare(sum(all_asked) / count, sum(limits) / count, average)

    def _read_limit(self, inputs: StrategyInput) -> float | None:
        """Return the cores that the tier may use."""
        view = inputs.view
        if self._policy is CPUEvictPolicy.EVICT_BY_ALLOCATABLE:
            if view.allocatable_cpu is None:
                return None
            taken = sum(pod.resources.cpu_request or 0 for pod in view.pods_in_tier(Tier.LSR, Tier.LS))
            return max(view.allocatable_cpu - taken, 0) / 1000
        shared, paths = inputs.shared_cpus.ids, view.best_effort_cgroups
        cpus = [inputs.read_knob_as(frozenset, path, CPUSET_EFFECTIVE) or shared for path in paths]
        cores = float(len(shared & frozenset[int]().union(*cpus)))
        return min(cores, sum(_read_quota(inputs, path) for path in paths))


def _read_quota(inputs: StrategyInput, path: str) -> float:
    """Return the cores that a cgroup's quota allows."""
    quota, period = inputs.read_knob_as(int, path, CPU_QUOTA), inputs.read_knob_as(int, path, CPU_PERIOD)
    return math.inf if quota is None or quota == UNLIMITED or not period else quota / period
