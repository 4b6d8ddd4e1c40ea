"""The definition of a simulated cluster: nodes, workloads, and the demand of their containers over time.

Demand is a `Trace`, whose columns containers name: what one replica wants while all replicas of the workload are there.
A generator's workload, a recording and a file all come as one. Left out: affinities and priorities; a pod here stands where
it fits, and one of a DaemonSet on its node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from trimtab.errors import TrimtabError
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.usage.trace import Trace

WorkloadKind = Literal["Deployment", "StatefulSet", "DaemonSet", "CronJob", "Job"]
SCALABLE_KINDS = frozenset({"Deployment", "StatefulSet"})
"""The kinds whose number of pods somebody sets; the others have one for each node, or for each run."""
_RESERVED_CPU, _RESERVED_MEMORY = 0.02, 0.07
"""The share of a node that its system keeps for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """Nodes that are all alike."""

    name: str = "node"
    count: int
    cpu: float
    """The cores of a node."""
    memory: float
    """The bytes of memory of a node."""
    pods: int = 110
    """The number of pods that a node can hold."""

    @property
    def allocatable_cpu(self) -> float:
        return self.cpu * (1 - _RESERVED_CPU)

    @property
    def allocatable_memory(self) -> float:
        return self.memory * (1 - _RESERVED_MEMORY)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """A container in the template of a workload."""

    name: str = "main"
    demand_series: int
    """The column of the demand that each replica of it wants."""
    resources: Resources
    burst: float = 0.3
    """The variation of CPU demand between CFS periods, as a share of its mean."""
    restart_on_memory_resize: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """A service that answers requests with the CPU of its first container."""

    cpu_seconds: float = 0.02
    """CPU time of a request."""
    latency_objective: float = 0.5
    """Seconds in which 99 of 100 are to be answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSchedule:
    """The runs of a CronJob, or the single run of a Job. A run has all replicas at once, and ends by itself."""

    lasts: float
    """The seconds of a run."""
    every: float = 0.0
    """The seconds from the beginning of one run to the next; 0 for a single run."""

    def is_running(self, elapsed: float) -> bool:
        """Return whether a run goes on so many seconds after the start of the scenario."""
        return (elapsed % self.every if self.every else elapsed) < self.lasts

    def is_over(self, elapsed: float) -> bool:
        """Return whether the last run has ended."""
        return not self.every and elapsed >= self.lasts


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """A workload. Its load is spread over the pods that are ready; what each of its pods holds in memory is its own."""

    name: str
    namespace: str = "default"
    kind: WorkloadKind = "Deployment"
    replicas: int = 1
    containers: tuple[ContainerSpec, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    update: Literal["RollingUpdate", "Recreate", "OnDelete"] = "RollingUpdate"
    startup_seconds: float = 10.0
    """Seconds from a pod's start to its being ready."""
    max_unavailable: int | None = None
    """The number of pods that evictions may leave missing, as in a PodDisruptionBudget; unlimited if left out."""
    service: ServiceSpec | None = None
    schedule: RunSchedule | None = None
    """The runs of a CronJob or Job; None for kinds that always run."""

    @property
    def key(self) -> WorkloadKey:
        return WorkloadKey(self.kind, self.namespace, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A cluster before anything has happened."""

    pools: tuple[NodePool, ...]
    workloads: tuple[WorkloadSpec, ...]
    demand: Trace
    noise: float = 0.1
    """The difference in CPU between replicas at each step, as a share; memory differs half as much."""
    interference: float = 0.3
    """The slowdown of everything on a node whose CPU is fully used."""

    def __post_init__(self) -> None:
        if not self.pools or not self.workloads:
            raise TrimtabError("a simulated cluster needs at least one node and one workload; name some")
        most = self.demand.container_count
        for workload in self.workloads:
            for container in workload.containers:
                if not 0 <= container.demand_series < most:
                    raise TrimtabError(
                        f"{workload.key} {container.name}: series {container.demand_series} does not exist; the demand has {most}"
                    )
        counts = Counter(workload.key for workload in self.workloads)
        if twice := [key for key, count in counts.items() if count > 1]:
            raise TrimtabError(f"workloads: {twice[0]} occurs twice; rename one")
