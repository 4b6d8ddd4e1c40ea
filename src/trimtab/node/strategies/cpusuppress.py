"""CPU suppress: limit best-effort pods to the CPU that other pods leave below a threshold.

    safe = shared CPUs · threshold - usage of other pods on them - max(usage of the system, reserved),
           at least shared CPUs · minimum

Shared CPUs are those on which best-effort pods can run, neither isolated nor exclusive. Usage of exclusive
CPUs does not count.

By quota: at least 2 ms per period; changes under 1 % of the shared CPUs are ignored; growth is at most 10 %
of them per round. By cpuset: at least 2 CPUs, growth at most 10 % per round, spread over NUMA nodes with both
threads of a core. Shrinking is immediate. BestEffort pods are limited by their common cgroup, unless another
pod such as kube-proxy is in it; then, and for best-effort pods elsewhere, the quota is divided between
cgroups by usage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from trimtab.api.nodeqospolicy import CPUSuppressPolicy, CPUSuppressSpec
from trimtab.node.arbiter import BoundType, KnobRef, KnobRequest, Precedence, Value
from trimtab.node.cgroups.knobs import CPU_PERIOD, CPU_QUOTA, CPUSET_CPUS
from trimtab.node.model import SYSTEM, Metric, Tier, pod_subject
from trimtab.node.strategies.cpuset import MIN_CPUS, order_cpus
from trimtab.node.strategies.strategy import NO_OUTPUT, StrategyInput, StrategyOutput

MIN_QUOTA = 2000
KERNEL_MIN_QUOTA = 1000
MIN_CHANGE = 0.01
MAX_GROWTH = 0.1
HEADROOM = 2.0
"""The multiple of its usage that a cgroup may have of a divided quota while another needs it."""
IDLE_SHARE = 0.1
"""The share of an even part that an idle cgroup keeps, so that it can start to work."""


@dataclass(frozen=True, slots=True)
class SafeCpu:
    """The safe CPU in cores, and the values behind it."""

    cores: float
    capacity: int
    used_by_others: float
    system: float
    is_complete: bool
    """Set if the usage of every other pod is known; otherwise the value is an upper bound."""

    def __str__(self) -> str:
        return (
            f"{self.cores:.2f} of {self.capacity} shared CPUs: "
            f"others use {self.used_by_others:.2f}, the system {self.system:.2f}"
        )


def compute_safe_cpu(inputs: StrategyInput) -> SafeCpu | None:
    """Return what best-effort pods may have; None while nothing is known of the system."""
    view, windows, settings = inputs.view, inputs.windows, inputs.policy.cpu_suppress
    shared, system = inputs.shared_cpus, windows.latest(SYSTEM, Metric.CPU)
    if system is None:
        return None
    capacity = len(shared.cpus)
    used = [shared.read_usage(pod, windows) for pod in view.pods_in_tier(Tier.LSR, Tier.LS)]
    # A pod whose usage is always unknown must not switch suppression off: the value is then an upper bound.
    known = [each for each in used if each is not None]
    reserved = 0.0 if view.allocatable_cpu is None else len(view.cpus) - view.allocatable_cpu / 1000
    others, kept = sum(known), max(system, reserved)
    left = capacity * settings.threshold_percent / 100 - others - kept
    least = capacity * settings.min_percent / 100
    return SafeCpu(max(left, least), capacity, others, kept, is_complete=len(known) == len(used))


def next_quota(cores: float, *, capacity: int, period: int, last: int | None) -> int:
    """Return the quota that follows the last one (None: unlimited)."""
    node = capacity * period
    wanted = max(int(cores * period), MIN_QUOTA)
    if last is None:
        return wanted
    # Usage is never the same twice; without it, the quota would be written every second.
    if abs(wanted - last) < node * MIN_CHANGE:
        return last
    # Reduced at once, raised in steps: a burst of a latency-sensitive pod would otherwise meet best-effort pods
    # that have just got all CPUs.
    return min(wanted, last + int(node * MAX_GROWTH))


def next_count(cores: float, *, capacity: int, last: int | None) -> int:
    """Return the number of CPUs that follows the last one."""
    wanted = min(max(math.ceil(cores), MIN_CPUS), capacity)
    return wanted if last is None else min(wanted, last + math.ceil(capacity * MAX_GROWTH))


def share_out(total: float, wanted: Sequence[float]) -> list[float]:
    """Divide an amount by demand: nobody gets more than wanted while another needs it; the rest is even."""
    shares, left = [0.0] * len(wanted), total
    for place, index in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        shares[index] = min(wanted[index], left / (len(wanted) - place))
        left -= shares[index]
    return [share + left / len(wanted) for share in shares]


class CpuSuppress:
    """Remembers its last value, which limits growth, and its division."""

    name: ClassVar[str] = "cpusuppress"
    settings_type: ClassVar[type[CPUSuppressSpec]] = CPUSuppressSpec

    def __init__(self) -> None:
        self._policy: CPUSuppressPolicy | None = None
        self._last: int | None = None
        self._reason = ""
        self._shares: dict[str, int] = {}
        self._shared_total: int | None = None

    def plan(self, inputs: StrategyInput) -> StrategyOutput:
        settings = inputs.policy.cpu_suppress
        if not settings.enable:
            self._policy = self._last = None
            return NO_OUTPUT
        # A quota and a number of CPUs are not comparable.
        if settings.policy is not self._policy:
            self._policy, self._last = settings.policy, None
        found = compute_safe_cpu(inputs)
        if found is not None:
            wanted = self._next_value(found, inputs)
            # On a busy node some new pod is always unknown: then the value may shrink but not grow.
            if found.is_complete or self._last is None or wanted < self._last:
                self._last, self._reason = wanted, str(found)
        if self._last is None:
            return NO_OUTPUT
        return StrategyOutput(self._build_requests(inputs, self._last))

    def _next_value(self, found: SafeCpu, inputs: StrategyInput) -> int:
        if self._policy is CPUSuppressPolicy.CPUSET:
            return next_count(found.cores, capacity=found.capacity, last=self._last)
        period = _read_period(inputs, inputs.view.best_effort_cgroup)
        return next_quota(found.cores, capacity=found.capacity, period=period, last=self._last)

    def _build_requests(self, inputs: StrategyInput, amount: int) -> tuple[KnobRequest, ...]:
        paths, by_cpuset = inputs.view.best_effort_cgroups, self._policy is CPUSuppressPolicy.CPUSET
        cpus = frozenset(order_cpus(inputs.shared_cpus.cpus)[:amount])
        values: Mapping[str, Value] = (
            dict.fromkeys(paths, cpus) if by_cpuset else self._share_quota(inputs, paths, amount)
        )
        return tuple(
            KnobRequest(
                ref=KnobRef(path, CPUSET_CPUS if by_cpuset else CPU_QUOTA),
                value=value,
                bound=BoundType.AT_MOST,
                precedence=Precedence.SAFETY,
                strategy=self.name,
                reason=self._reason,
            )
            for path, value in values.items()
        )

    def _share_quota(self, inputs: StrategyInput, paths: Sequence[str], total: int) -> dict[str, int]:
        """Divide the quota; keep the last division while it hardly changes, to save journal writes."""
        period, idle = (
            _read_period(inputs, inputs.view.best_effort_cgroup),
            IDLE_SHARE * total / max(1, len(paths)),
        )
        wanted = [max(idle, HEADROOM * period * _read_usage(inputs, path)) for path in paths]
        shares = dict(zip(paths, share_out(total, wanted), strict=True))
        small = len(inputs.shared_cpus.cpus) * period * MIN_CHANGE
        is_same = self._shared_total == total and shares.keys() == self._shares.keys()
        if not is_same or any(abs(share - self._shares[path]) >= small for path, share in shares.items()):
            self._shares = {path: round(share) for path, share in shares.items()}
            self._shared_total = total
        return {
            path: max(round(share * _read_period(inputs, path) / period), KERNEL_MIN_QUOTA)
            for path, share in self._shares.items()
        }


def _read_usage(inputs: StrategyInput, path: str) -> float:
    """Return the cores that the best-effort pods of a cgroup use; as many as there are while that is not known."""
    pods = [pod for pod in inputs.view.pods_in_tier(Tier.BE) if f"{pod.cgroup}/".startswith(f"{path}/")]
    used = [inputs.windows.latest(pod_subject(pod.uid), Metric.CPU) for pod in pods]
    return sum(math.inf if cores is None else cores for cores in used)


def _read_period(inputs: StrategyInput, path: str) -> int:
    return inputs.read_knob_as(int, path, CPU_PERIOD) or 100_000
