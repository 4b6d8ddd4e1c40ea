"""CPU burst: let a latency-sensitive container exceed its limit briefly instead of throttling it.

There are two ways, used alone or together. The kernel accumulates unused quota (`cpu.burst`, a percentage of
the limit). The kernel rejects a burst above the quota and a quota below the burst, and the kubelet must
always be able to write the quota of the current limit and of a pending resize, so the burst is at most these.
And the quota itself is raised by a fifth while the container is throttled, up to a ceiling; lowered by a
fifth when the shared CPUs exceed a threshold; and held within a tenth of it. A resized container starts at
its new limit. A token bucket bounds the time above the limit: it fills while usage is below, and when it is
empty the quota returns to the limit. A pod's own quota is raised by the sum of its containers'.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar

from trimtab.api.nodeqospolicy import CPUBurstPolicy, CPUBurstSpec
from trimtab.node.arbiter import BoundType, KnobRef, KnobRequest, Precedence, Value
from trimtab.node.cgroups import Knob
from trimtab.node.cgroups.knobs import CPU_BURST, CPU_PERIOD, CPU_QUOTA
from trimtab.node.model import (
    BEST_EFFORT,
    NODE,
    ContainerView,
    Metric,
    PodView,
    Tier,
    container_subject,
    pod_subject,
)
from trimtab.node.strategies.strategy import NO_OUTPUT, StrategyInput, StrategyOutput

RAISE_FACTOR, LOWER_FACTOR = 1.2, 0.8
MIN_QUOTA = 1000
"""The kernel's minimum quota, which the kubelet uses for any smaller limit."""
COOLING_SHARE = 0.9
"""The share of the threshold from which quotas are held."""
BURST_POLICIES = (CPUBurstPolicy.CPU_BURST_ONLY, CPUBurstPolicy.AUTO)
QUOTA_POLICIES = (CPUBurstPolicy.CFS_QUOTA_BURST_ONLY, CPUBurstPolicy.AUTO)


class PoolState(Enum):
    """The load of the CPUs that latency-sensitive pods share."""

    IDLE = "idle"
    COOLING = "cooling"
    OVERLOADED = "overloaded"
    UNKNOWN = "unknown"


def classify_pool(inputs: StrategyInput) -> PoolState:
    """Return the load of the shared CPUs.

    Usage of exclusive CPUs does not count, nor does that of best-effort pods, which yield.
    """
    windows, shared = inputs.windows, inputs.shared_cpus
    node = windows.latest(NODE, Metric.CPU)
    if node is None:
        return PoolState.UNKNOWN
    elsewhere = sum(
        (windows.latest(pod_subject(pod.uid), Metric.CPU) or 0.0) - (shared.read_usage(pod, windows) or 0.0)
        for pod in inputs.view.pods_in_tier(Tier.LSR, Tier.LS)
    )
    used, size = node - elsewhere - (windows.latest(BEST_EFFORT, Metric.CPU) or 0.0), len(shared.cpus)
    threshold_percent = inputs.policy.cpu_burst.share_pool_threshold_percent
    busy, threshold = (used / size if size > 0 else 1.0), threshold_percent / 100
    if busy >= threshold:
        return PoolState.OVERLOADED
    return PoolState.COOLING if busy >= threshold * COOLING_SHARE else PoolState.IDLE


@dataclass(slots=True)
class TokenBucket:
    """The percent-seconds above the limit that remain for a container."""

    capacity: float
    tokens: float
    at: float

    def consume(self, now: float, used_percent: float) -> bool:
        """Consume the usage above the limit since the last call, or refill; return whether tokens remain."""
        spent = (now - self.at) * (used_percent - 100)
        self.tokens, self.at = min(self.tokens - spent, self.capacity), now
        return self.tokens > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerQuota:
    """The target of a container in microseconds per period."""

    limit: int
    quota: int
    burst: int | None
    """The burst; None if it is not used."""


@dataclass(slots=True)
class QuotaState:
    """The current state of a container's quota."""

    base: int
    """The quota of the limit from which it was raised."""
    quota: int
    bucket: TokenBucket


class CpuBurst:
    """Remembers each container's raised quota and bucket."""

    name: ClassVar[str] = "cpuburst"
    settings_type: ClassVar[type[CPUBurstSpec]] = CPUBurstSpec

    def __init__(self) -> None:
        self._quotas: dict[str, QuotaState] = {}
        self._periods: dict[str, int] = {}

    def plan(self, inputs: StrategyInput) -> StrategyOutput:
        settings = inputs.policy.cpu_burst
        if settings.policy is CPUBurstPolicy.NONE:
            self._quotas.clear()
            return NO_OUTPUT
        state = classify_pool(inputs)
        pods = [pod for pod in inputs.view.pods_in_tier(Tier.LS) if not pod.deleting]
        external_values: dict[KnobRef, Value] = {}
        requests = [each for pod in pods for each in self._request_pod(inputs, pod, state, external_values)]
        alive = {container.id for pod in pods for container in pod.containers}
        limited = {one.id for pod in pods for one in pod.containers if one.resources.cpu_limit}
        raising = limited if settings.policy in QUOTA_POLICIES else frozenset[str]()
        self._quotas = {key: raised for key, raised in self._quotas.items() if key in raising}
        self._periods = {key: period for key, period in self._periods.items() if key in alive}
        return StrategyOutput(tuple(requests), external_values=external_values)

    def _request_pod(
        self, inputs: StrategyInput, pod: PodView, state: PoolState, external_values: dict[KnobRef, Value]
    ) -> list[KnobRequest]:
        """Return the requests of a pod; add the values that the kubelet writes to `external_values`."""
        limited = [container for container in pod.containers if container.resources.cpu_limit]
        wanted = [self._target_quota(inputs, pod, container, state) for container in limited]
        requests: list[KnobRequest] = []
        for container, share in zip(limited, wanted, strict=True):
            reason = f"limit {container.resources.cpu_limit} m"
            # If the runtime writes the limit to two cgroups, both must be raised.
            for path in filter(None, (container.cgroup, container.inner_cgroup)):
                external_values[KnobRef(path, CPU_QUOTA)] = share.limit
                if share.burst is not None:
                    requests.append(self._build_request(path, CPU_BURST, share.burst, reason))
                if share.quota != share.limit:
                    pool = f"shared CPUs {state.value}"
                    requests.append(self._build_request(path, CPU_QUOTA, share.quota, f"{reason}, {pool}"))
        # The pod's cgroup has a quota too, and would throttle its containers at their former sum.
        if limited and pod.resources.cpu_limit:
            own = _limit_to_quota(pod.resources.cpu_limit, self._read_period(inputs, limited[0]))
            external_values[KnobRef(pod.cgroup, CPU_QUOTA)] = own
            if burst := sum(share.burst or 0 for share in wanted):
                requests.append(self._request_headroom(pod, CPU_BURST, burst))
            if more := sum(share.quota - share.limit for share in wanted):
                requests.append(self._request_headroom(pod, CPU_QUOTA, own + more))
        return requests

    def _target_quota(
        self, inputs: StrategyInput, pod: PodView, container: ContainerView, state: PoolState
    ) -> ContainerQuota:
        settings, period = inputs.policy.cpu_burst, self._read_period(inputs, container)
        limit = _limit_to_quota(container.resources.cpu_limit or 0, period)
        quota = limit
        if settings.policy in QUOTA_POLICIES:
            subject = container_subject(pod.uid, container.name)
            quota = self._adjust_quota(container, subject=subject, base=limit, inputs=inputs, state=state)
        burst = None
        if settings.policy in BURST_POLICIES:
            # While a resize is pending, the kubelet may write the smaller limit at any time, and the kernel
            # rejects a quota below the burst.
            to_come = container.spec_resources.cpu_limit
            most = limit if to_come is None else min(limit, _limit_to_quota(to_come, period))
            burst = min(limit * settings.cpu_burst_percent // 100, most)
        return ContainerQuota(limit=limit, quota=quota, burst=burst)

    def _read_period(self, inputs: StrategyInput, container: ContainerView) -> int:
        """Return the period, which the kubelet sets once per container."""
        if container.id not in self._periods:
            self._periods[container.id] = inputs.read_knob_as(int, container.cgroup, CPU_PERIOD) or 100_000
        return self._periods[container.id]

    def _adjust_quota(
        self, container: ContainerView, *, subject: str, base: int, inputs: StrategyInput, state: PoolState
    ) -> int:
        settings, now = inputs.policy.cpu_burst, inputs.now
        seconds = settings.cfs_quota_burst_period_seconds
        capacity = seconds * (settings.cfs_quota_burst_percent - 100)
        quota_state = self._quotas.setdefault(
            container.id, QuotaState(base, base, TokenBucket(capacity, capacity, now))
        )
        if quota_state.base != base:
            # Resized: the raised quota of the former limit does not apply to the new one.
            quota_state.base = quota_state.quota = base
        if quota_state.bucket.capacity != capacity:  # the policy changed
            quota_state.bucket = TokenBucket(capacity, capacity, now)
        used = inputs.windows.latest(subject, Metric.CPU) or 0.0
        allowed = seconds < 0 or quota_state.bucket.consume(
            now, 1e5 * used / (container.resources.cpu_limit or 1)
        )
        # The bucket is empty: the container has used up what it may take beyond its limit.
        if not allowed:
            quota_state.quota = base
        elif state is PoolState.OVERLOADED:
            quota_state.quota = int(quota_state.quota * LOWER_FACTOR)
        # Only throttled containers: a larger quota has no effect on the others.
        elif state is PoolState.IDLE and inputs.windows.latest(subject, Metric.THROTTLED):
            quota_state.quota = int(quota_state.quota * RAISE_FACTOR)
        quota_state.quota = min(max(quota_state.quota, base), base * settings.cfs_quota_burst_percent // 100)
        return quota_state.quota

    def _request_headroom(self, pod: PodView, knob: Knob[int], value: int) -> KnobRequest:
        """Request headroom of a pod for its containers; at least, because not all of them may be running."""
        return replace(
            self._build_request(pod.cgroup, knob, value, "headroom for its containers"),
            bound=BoundType.AT_LEAST,
        )

    def _build_request(self, path: str, knob: Knob[int], value: int, reason: str) -> KnobRequest:
        return KnobRequest(
            ref=KnobRef(path, knob),
            value=value,
            strategy=self.name,
            reason=reason,
            precedence=Precedence.PRIORITY,
        )


def _limit_to_quota(limit: int, period: int) -> int:
    """Return the kubelet's quota for a limit in millicores."""
    return max(limit * period // 1000, MIN_QUOTA)
