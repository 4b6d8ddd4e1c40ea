"""What strategies look at: the node, its pods and containers as frozen records, and questions about the near past.

A strategy is a pure function of this picture: `wishes(view, windows, policy, now)` gives wishes for knobs, and neither
reads a file nor a clock. Records tell what is wanted and where it lies; what is used and suffered is in `Windows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final, Protocol

from trimtab.api.pod_annotations import CACHE_CLASS, CACHE_CLASSES
from trimtab.kube.kinds.pods import Resources
from trimtab.node.cgroups import QosClass

TIER_LABEL: Final = "trimtab.io/qos"
CRITICAL_PRIORITY: Final = 2_000_000_000
"""The priority from which on Kubernetes cannot do without a pod, as of kube-proxy: that of `system-cluster-critical`."""


class Tier(StrEnum):
    """How a pod is treated where others want the same."""

    LSR = "LSR"
    """Reserved: as latency-sensitive, with CPUs of its own."""
    LS = "LS"
    """Latency-sensitive."""
    BE = "BE"
    """Best-effort: gets what is left."""


def resolve_tier(label: str | None, qos: QosClass) -> Tier:
    """By the pod's label where it has a good one; else what Kubernetes calls BestEffort is that, and the rest is not."""
    try:
        return Tier((label or "").upper())
    except ValueError:
        return Tier.BE if qos is QosClass.BEST_EFFORT else Tier.LS


def resolve_cache_tier(annotations: Mapping[str, str], tier: Tier) -> Tier:
    """The tier whose cache class a pod is in: by its annotation where that names one, else its own."""
    named = CACHE_CLASSES.get(annotations.get(CACHE_CLASS, "").lower())
    return tier if named is None else Tier(named)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerView:
    """A container that runs; one that does not has no cgroup to look at."""

    name: str
    id: str
    """Without the runtime's prefix."""
    resources: Resources
    """In millicores and bytes; None where it asks for nothing."""
    cgroup: str
    """Its path below the root of the hierarchy; `Hierarchy.cgroup` makes a handle of it."""
    spec_resources: Resources = field(default_factory=Resources)
    """What its pod's spec asks for: other than what it has while it is being resized."""
    inner_cgroup: str | None = None
    """The cgroup within its own to which its runtime writes the same limits once more, if there is one."""


@dataclass(frozen=True, kw_only=True)
class PodView:
    """A pod on this node that has a cgroup.

    A critical pod is never best-effort: kube-proxy, CNI and CSI pods commonly have no requests, and a node whose traffic
    and volumes are squeezed together with its batch jobs serves nobody.
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
    """Only those that begin with trimtab.io/."""
    started: float = 0.0
    """Seconds since 1970; 0 when it has not."""
    deleting: bool = False
    is_node_bound: bool = False
    """Whether it belongs to this node: sent away, it would be back at once, as one that the kubelet has from a file or that a
    DaemonSet makes."""
    pod_level_resources: Resources = field(default_factory=Resources)
    """What is asked for it as a whole, which its containers share; most pods ask for their containers alone."""

    def __post_init__(self) -> None:
        if self.tier is Tier.BE and self.is_critical:
            object.__setattr__(self, "tier", Tier.LS)

    @property
    def is_critical(self) -> bool:
        """Whether Kubernetes calls it critical to its node or cluster."""
        return self.priority >= CRITICAL_PRIORITY

    @property
    def is_evictable(self) -> bool:
        """Whether it may be sent away: no pod that nobody has told of yet, and none that the kubelet would keep, either."""
        return bool(self.name) and not self.is_node_bound and not self.is_critical

    @cached_property
    def resources(self) -> Resources:
        """Of the pod as a whole, else of all containers together: a limit is one only where every container has it."""
        each, whole = [container.resources for container in self.containers], self.pod_level_resources
        return Resources(
            cpu_request=_coalesce(whole.cpu_request, _sum_known([one.cpu_request for one in each])),
            cpu_limit=_coalesce(whole.cpu_limit, _sum_if_all_known([one.cpu_limit for one in each])),
            memory_request=_coalesce(whole.memory_request, _sum_known([one.memory_request for one in each])),
            memory_limit=_coalesce(whole.memory_limit, _sum_if_all_known([one.memory_limit for one in each])),
        )


def _coalesce(one: int | None, other: int | None) -> int | None:
    return other if one is None else one


def _sum_known(amounts: list[int | None]) -> int | None:
    there = [amount for amount in amounts if amount is not None]
    return sum(there) if there else None


def _sum_if_all_known(amounts: list[int | None]) -> int | None:
    there = [amount for amount in amounts if amount is not None]
    return sum(there) if there and len(there) == len(amounts) else None


@dataclass(frozen=True, slots=True)
class Cpu:
    """One logical CPU. Hyper-threads share a core."""

    id: int
    core: int
    socket: int
    numa: int
    cache: int = 0
    """Its last-level cache; those with the same number share one."""
    isolated: bool = False
    """Whether the kernel was told to keep it for whoever asks for it by number (isolcpus)."""


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """This node and its pods at one moment."""

    name: str
    cpus: tuple[Cpu, ...]
    memory: int
    """All that the kernel has, in bytes."""
    pods: tuple[PodView, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    pods_cgroup: str = "kubepods"
    """The cgroup of all pods."""
    best_effort_cgroup: str = "kubepods/besteffort"
    """The cgroup of the pods that Kubernetes calls BestEffort."""
    allocatable_cpu: int | None = None
    """In millicores, where the API server has told."""
    allocatable_memory: int | None = None

    def pods_in_tier(self, *tiers: Tier) -> tuple[PodView, ...]:
        return tuple(pod for pod in self.pods if pod.tier in tiers)

    @cached_property
    def best_effort_cgroups(self) -> tuple[str, ...]:
        """The fewest cgroups that hold all best-effort pods and nobody else, which is what can be limited.

        Kubernetes keeps all pods of its class BestEffort in one cgroup. That one stands for them as long as all of them are
        best-effort; beside a critical pod, or one that is labelled otherwise, each best-effort pod stands for itself, as
        does one of another class that is best-effort by its label.
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
    """What is measured. All are rates or states at a moment, none is a counter."""

    CPU = "cpu"
    """Cores."""
    MEMORY = "memory"
    """Bytes that cannot be had back without swap: no page cache."""
    PAGE_CACHE = "page_cache"
    """Bytes of files in memory."""
    THROTTLED = "throttled"
    """Share of the periods in which the quota ran out, 0 to 1."""
    CPU_PRESSURE = "cpu_pressure"
    """Share of time in which some task waited for CPU, 0 to 1; the kernel's average over ten seconds."""
    MEMORY_PRESSURE = "memory_pressure"
    MEMORY_PRESSURE_FULL = "memory_pressure_full"
    """Share of time in which all tasks waited."""
    IO_PRESSURE = "io_pressure"
    IO_PRESSURE_FULL = "io_pressure_full"
    CPI = "cpi"
    """Cycles an instruction; more of them for the same work is interference."""
    RUN_DELAY = "run_delay"
    """Seconds spent in a run queue a second, over all tasks."""


NODE: Final = "node"
SYSTEM: Final = "system"
"""The node without its pods."""


def tier_subject(tier: Tier) -> str:
    return f"tier/{tier.value}"


BEST_EFFORT: Final = tier_subject(Tier.BE)
"""All best-effort pods together."""


def pod_subject(uid: str) -> str:
    return f"pod/{uid}"


def container_subject(uid: str, name: str) -> str:
    return f"pod/{uid}/{name}"


@dataclass(frozen=True, slots=True)
class WindowStats:
    """How a metric was spread over a window."""

    avg: float
    p50: float
    p90: float
    p95: float
    p99: float
    samples: int


class MetricWindows(Protocol):
    """What is known of the near past, by subject ("node", "system", "tier/BE", `pod_subject`, `container_subject`).

    None always means: not known. Either nobody measures it here, or not long enough, or not any more.
    """

    def latest(self, subject: str, metric: Metric) -> float | None:
        """The last sample, unless it is older than three of its periods."""
        ...

    def average(self, subject: str, metric: Metric, seconds: float) -> float | None:
        """Over the last so many seconds; None before samples span half of them."""
        ...

    def spread(self, subject: str, metric: Metric, seconds: float) -> WindowStats | None:
        """As `average`, with percentiles."""
        ...
