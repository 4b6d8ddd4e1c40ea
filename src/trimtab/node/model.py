"""The node model: the node, its pods and containers as frozen records, and queries of recent metrics.

A strategy is a pure function of these and reads neither files nor clocks. Records describe the desired state
and the cgroups; usage is in `MetricWindows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final, Protocol

from trimtab.api.nodeqospolicy import CACHE_CLASS, CACHE_CLASSES, TierNamespacesSpec
from trimtab.kube.kinds.pods import Resources
from trimtab.node.cgroups import QosClass

TIER_LABEL: Final = "trimtab.io/qos"
CRITICAL_PRIORITY: Final = 2_000_000_000
"""The priority of `system-cluster-critical`, from which on a pod is critical."""


class Tier(StrEnum):
    """The treatment of a pod under contention."""

    LSR = "LSR"
    """Reserved: latency-sensitive with exclusive CPUs."""
    LS = "LS"
    """Latency-sensitive."""
    BE = "BE"
    """Best-effort: uses what others leave."""


_RANKS = {Tier.BE: 0, Tier.LS: 1, Tier.LSR: 2}


def resolve_tier(label: str | None, qos: QosClass, namespace: str, allowed: TierNamespacesSpec) -> Tier:
    """Return the tier of a valid label that the namespace may choose; else BE for the BestEffort class and LS for the
    others.
    """
    own = Tier.BE if qos is QosClass.BEST_EFFORT else Tier.LS
    try:
        chosen = Tier((label or "").upper())
    except ValueError:
        return own
    return _limit_tier(chosen, own, namespace, allowed)


def resolve_cache_tier(
    annotations: Mapping[str, str], tier: Tier, namespace: str, allowed: TierNamespacesSpec
) -> Tier:
    """Return the tier whose cache class a pod uses: that of its annotation if it may choose it, or else its own."""
    named = CACHE_CLASSES.get(annotations.get(CACHE_CLASS, "").lower())
    return tier if named is None else _limit_tier(Tier(named), tier, namespace, allowed)


def _limit_tier(chosen: Tier, own: Tier, namespace: str, allowed: TierNamespacesSpec) -> Tier:
    is_better = _RANKS[chosen] > _RANKS[own]
    return own if is_better and not allowed.allows(chosen.value, namespace) else chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerView:
    """A running container."""

    name: str
    id: str
    """The id without the runtime's prefix."""
    resources: Resources
    """The resources in millicores and bytes; None where unset."""
    cgroup: str
    """The path below the root of the hierarchy."""
    spec_resources: Resources = field(default_factory=Resources)
    """The resources in the pod's spec, which differ from the actual ones during a resize."""
    inner_cgroup: str | None = None
    """The inner cgroup to which the runtime writes the same limits, if there is one."""


@dataclass(frozen=True, kw_only=True)
class PodView:
    """A pod on this node that has a cgroup.

    A critical pod is never best-effort: kube-proxy, CNI and CSI pods often have no requests, and throttling
    them with batch jobs would break the node's network and volumes.
    """

    uid: str
    namespace: str
    name: str
    tier: Tier
    qos: QosClass
    priority: int
    cgroup: str
    containers: tuple[ContainerView, ...]
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    """The annotations that begin with trimtab.io/."""
    started: float = 0.0
    """The start time in seconds since 1970; 0 before the start."""
    deleting: bool = False
    is_node_bound: bool = False
    """Set for static pods and DaemonSet pods, which would come back at once after an eviction."""
    pod_level_resources: Resources = field(default_factory=Resources)
    """The pod-level resources, which the containers share; most pods have none."""

    def __post_init__(self) -> None:
        if self.tier is Tier.BE and self.is_critical:
            object.__setattr__(self, "tier", Tier.LS)

    @property
    def is_critical(self) -> bool:
        """Return whether Kubernetes considers the pod critical to its node or cluster."""
        return self.priority >= CRITICAL_PRIORITY

    @property
    def is_evictable(self) -> bool:
        """Return whether the pod may be evicted; unknown, node-bound and critical pods may not."""
        return bool(self.name) and not self.is_node_bound and not self.is_critical

    @cached_property
    def resources(self) -> Resources:
        """Return the pod-level resources, or else the sum of its containers; a limit needs one in each."""
        containers = Resources.total(container.resources for container in self.containers)
        return self.pod_level_resources.fill_from(containers)


@dataclass(frozen=True, slots=True)
class Cpu:
    """One logical CPU. Hyper-threads share a core."""

    id: int
    core: int
    socket: int
    numa: int
    cache: int = 0
    """The last-level cache; CPUs with the same number share one."""
    isolated: bool = False
    """Set if the kernel isolates the CPU (isolcpus)."""


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """This node and its pods at one moment."""

    name: str
    cpus: tuple[Cpu, ...]
    memory: int
    """The kernel's total memory in bytes."""
    pods: tuple[PodView, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    pods_cgroup: str = "kubepods"
    """The cgroup of all pods."""
    best_effort_cgroup: str = "kubepods/besteffort"
    """The cgroup of the BestEffort class."""
    allocatable_cpu: int | None = None
    """The allocatable CPU in millicores, once the API server has sent it."""
    allocatable_memory: int | None = None

    def pods_in_tier(self, *tiers: Tier) -> tuple[PodView, ...]:
        return tuple(pod for pod in self.pods if pod.tier in tiers)

    @cached_property
    def best_effort_cgroups(self) -> tuple[str, ...]:
        """Return the fewest cgroups that contain all best-effort pods and no others, to limit them.

        Kubernetes keeps all BestEffort pods in one cgroup, which is used while all of them are best-effort.
        Beside a critical pod, or one with another label, each best-effort pod is listed itself, as is a pod
        of another class that is best-effort by its label.
        """
        together = f"{self.best_effort_cgroup}/"
        is_shared = any(pod.tier is not Tier.BE for pod in self.pods if pod.cgroup.startswith(together))
        pods = [pod.cgroup for pod in self.pods_in_tier(Tier.BE)]
        if is_shared:
            return tuple(pods)
        return (self.best_effort_cgroup, *(path for path in pods if not path.startswith(together)))

    @cached_property
    def pods_by_uid(self) -> dict[str, PodView]:
        return {pod.uid: pod for pod in self.pods}


class Metric(StrEnum):
    """The measured metrics; all are rates or states, none is a counter."""

    CPU = "cpu"
    """The CPU usage in cores."""
    MEMORY = "memory"
    """The bytes that cannot be reclaimed without swap, without page cache."""
    PAGE_CACHE = "page_cache"
    """The bytes of files in memory."""
    THROTTLED = "throttled"
    """The share of periods in which the quota was used up, 0 to 1."""
    CPU_PRESSURE = "cpu_pressure"
    """The share of time in which some task waited for CPU, 0 to 1; the kernel averages ten seconds."""
    MEMORY_PRESSURE = "memory_pressure"
    MEMORY_PRESSURE_FULL = "memory_pressure_full"
    """The share of time in which all tasks waited."""
    IO_PRESSURE = "io_pressure"
    IO_PRESSURE_FULL = "io_pressure_full"
    CPI = "cpi"
    """The cycles per instruction; more for the same work indicate interference."""
    RUN_DELAY = "run_delay"
    """The seconds that all tasks spent in run queues per second."""


NODE: Final = "node"
SYSTEM: Final = "system"
"""The subject of the node without its pods."""


def tier_subject(tier: Tier) -> str:
    return f"tier/{tier.value}"


BEST_EFFORT: Final = tier_subject(Tier.BE)
"""The subject of all best-effort pods together."""


def pod_subject(uid: str) -> str:
    return f"pod/{uid}"


def container_subject(uid: str, name: str) -> str:
    return f"pod/{uid}/{name}"


@dataclass(frozen=True, slots=True)
class WindowStats:
    """The distribution of a metric over a window."""

    avg: float
    p50: float
    p90: float
    p95: float
    p99: float
    samples: int


class MetricWindows(Protocol):
    """Recent metrics by subject ("node", "system", "tier/BE", `pod_subject`, `container_subject`).

    None means unknown: not measured, not long enough, or not any more.
    """

    def latest(self, subject: str, metric: Metric) -> float | None:
        """Return the last sample, unless it is older than three of its periods."""
        ...

    def average(self, subject: str, metric: Metric, seconds: float) -> float | None:
        """Return the average of the last `seconds`; None until samples span half of them."""
        ...

    def spread(self, subject: str, metric: Metric, seconds: float) -> WindowStats | None:
        """Return the average and percentiles, like `average`."""
        ...
