"""Records of a scan: findings per container and workload, skipped workloads, and totals.

Amounts are millicores and bytes; money is per month.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trimtab.api.quantity import ResourceName
from trimtab.kube.kinds.pods import Pod, Resources, Role
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.resources import CONFIG_MAPS, INTENTS, NAMESPACES, OPTIMIZATION_POLICIES, VPAS
from trimtab.scan.pricing import NodeBill, ResourcePrices
from trimtab.scan.risk import Risk, Severity
from trimtab.scan.usage_model import UsageTotals
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.recommendation import Recommendation

POLICY_INPUTS = frozenset({NAMESPACES, OPTIMIZATION_POLICIES, VPAS, INTENTS})
"""The resources that decide who sizes a workload; they are listed where Trimtab is installed."""

SHORT_KINDS = {
    "Deployment": "deploy",
    "StatefulSet": "sts",
    "DaemonSet": "ds",
    "ReplicaSet": "rs",
    "CronJob": "cron",
    "Job": "job",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFinding:
    """The finding for one container; amounts are per replica, except `usage`, which sums all replicas."""

    name: str
    role: Role
    current: Resources
    recommendation: Recommendation
    evidence: Evidence
    usage: UsageTotals
    risks: tuple[Risk, ...]
    severity: Severity
    saving: float
    """The monthly saving over all replicas; negative if the container should get more."""
    compared: Mapping[str, Resources]
    """The requests that other strategies propose, by strategy name, without Trimtab's guards."""

    @property
    def recommended(self) -> Resources:
        """The recommended requests and limits, to which the changes of a policy lead in steps."""
        return self.recommendation.target

    @property
    def next_step(self) -> Resources | None:
        """The first change towards the recommendation; None if one change is enough, or no policy limits changes."""
        step = self.recommendation.resources
        return None if step == self.recommended else step

    @property
    def has_changes(self) -> bool:
        return self.recommended != self.current

    @property
    def is_missing_requests(self) -> bool:
        return is_missing_requests(self.current)


@dataclass(frozen=True, slots=True)
class AppliedPolicy:
    """The policy by which a scan sizes a workload, as the operator does."""

    name: str
    """Namespace and name, or `default` for the default policy of the operator's configuration."""
    strategy: str
    settings: Mapping[str, Any]
    """All settings of the strategy, defaults included."""
    stabilization: float
    """The seconds for which sizes are kept before they are reduced."""
    minimum_change: float
    """The share of an amount by which a recommendation must differ from it to be applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFinding:
    """The finding for one workload."""

    workload: Workload
    pods: tuple[Pod, ...]
    containers: tuple[ContainerFinding, ...]
    instances: float
    """The number of pods that cost money: the current pods, or for Jobs and CronJobs the mean over the window."""
    confidence: str
    """The confidence, low, medium or high, by the length of the usage history."""
    cost: float
    """The monthly cost of the current requests."""
    owned: tuple[WorkloadKey, ...] = ()
    """The workloads that this one owns, such as the StatefulSets of a custom resource."""
    operator_obstacle: str = ""
    """The reason why the operator, by the workload's policy or else by a default one, leaves the requests unchanged; empty if it
    changes them."""
    intent: str = ""
    """The Intent that controls the size of the workload; empty if none does."""
    policy: AppliedPolicy | None = None
    """The policy of the cluster that the recommendation follows; None if no policy selects the workload."""

    @property
    def key(self) -> WorkloadKey:
        return self.workload.key

    @property
    def replicas(self) -> int:
        return len(self.pods) or self.workload.replicas

    @property
    def observed_seconds(self) -> float:
        """The length of the usage history of the container with the shortest one."""
        return min((each.evidence.observed_seconds for each in self.containers), default=0.0)

    @property
    def recommendations(self) -> tuple[Recommendation, ...]:
        return tuple(each.recommendation for each in self.containers)

    @property
    def evidence(self) -> dict[str, Evidence]:
        return {each.name: each.evidence for each in self.containers}

    @property
    def saving(self) -> float:
        """The monthly saving; negative if the workload should get more."""
        return sum(each.saving for each in self.containers)

    @property
    def severity(self) -> Severity:
        return max((each.severity for each in self.containers), default=Severity.NONE)


@dataclass(frozen=True, slots=True)
class SkippedWorkload:
    """A workload without a finding, and the reason."""

    key: WorkloadKey
    reason: str
    owned: tuple[WorkloadKey, ...] = ()
    """The workloads that this one owns."""


@dataclass(frozen=True, slots=True)
class ResourceTotals:
    """The totals of one resource over all workloads, in millicores or bytes."""

    requested: float = 0.0
    used: float = 0.0
    wasted: float = 0.0
    """The amount requested beyond the recommendations."""
    missing: float = 0.0
    """The amount recommended beyond the requests."""


@dataclass(frozen=True, kw_only=True)
class ScanResult:
    """The result of scanning one cluster."""

    context: str
    server: str
    source: str
    """The description of the usage source, as users read it."""
    scanned_at: float
    """The time of the scan, as a Unix timestamp in seconds."""
    window: float
    step: float
    """The seconds between two samples."""
    strategy: str
    settings: Mapping[str, Any]
    """All settings of the strategy, defaults included."""
    prices: ResourcePrices
    workloads: tuple[WorkloadFinding, ...]
    """The findings, most important first."""
    skipped: tuple[SkippedWorkload, ...]
    forbidden_namespaces: Mapping[str, str]
    """The namespaces that the scan may not read, each with the API server's message."""
    errors_by_resource: Mapping[str, str]
    """The errors that left the snapshot incomplete, by resource."""
    nodes: NodeBill | None = None
    """The bill of the nodes; None if the scan covers only a part of what runs on them."""
    compared: tuple[str, ...] = ()

    @cached_property
    def cpu(self) -> ResourceTotals:
        return _sum_resource(self.workloads, "cpu")

    @cached_property
    def memory(self) -> ResourceTotals:
        return _sum_resource(self.workloads, "memory")

    @property
    def cost(self) -> float:
        """The monthly cost of all requests."""
        return sum(each.cost for each in self.workloads)

    @property
    def observed_seconds(self) -> float:
        """The length of the longest usage history; far below the window where the source is young."""
        return max((each.observed_seconds for each in self.workloads), default=0.0)

    @property
    def wasted(self) -> float:
        """The monthly cost of requests beyond the recommendations."""
        return self.prices.price_cpu(self.cpu.wasted) + self.prices.price_memory(self.memory.wasted)

    @property
    def missing(self) -> float:
        """The monthly cost of the additional requests that are recommended."""
        return self.prices.price_cpu(self.cpu.missing) + self.prices.price_memory(self.memory.missing)

    def count_at_risk(self, risk: Risk) -> int:
        """Count the containers with this risk; the replicas of a workload count once."""
        return sum(risk in each.risks for one in self.workloads for each in one.containers)

    @property
    def at_risk_total(self) -> int:
        """The number of containers with any risk."""
        return sum(bool(each.risks) for one in self.workloads for each in one.containers)

    @property
    def unread_policy_inputs(self) -> dict[str, str]:
        """The resources that decide about policies and could not be read in part or in whole, each with the reason."""
        decisive = map(str, (*POLICY_INPUTS, CONFIG_MAPS))
        return {name: self.errors_by_resource[name] for name in decisive if name in self.errors_by_resource}

    @property
    def without_requests(self) -> int:
        return sum(each.is_missing_requests for one in self.workloads for each in one.containers)


def build_failed_scan(
    context: str, reason: str, *, at: float, window: float, strategy: str, prices: ResourcePrices
) -> ScanResult:
    """Build the result for a cluster that could not be scanned, so that a report on several clusters shows the gap."""
    return ScanResult(
        context=context,
        server="",
        source="not read",
        scanned_at=at,
        window=window,
        step=0.0,
        strategy=strategy,
        settings={},
        prices=prices,
        workloads=(),
        skipped=(),
        forbidden_namespaces={},
        errors_by_resource={"this cluster": reason},
    )


def is_missing_requests(current: Resources) -> bool:
    """Return whether CPU or memory has neither a request nor a limit; Kubernetes defaults a request to its limit."""
    return (
        current.cpu_request is current.cpu_limit is None
        or current.memory_request is current.memory_limit is None
    )


def _sum_resource(workloads: Iterable[WorkloadFinding], resource: ResourceName) -> ResourceTotals:
    requested = used = wasted = missing = 0.0
    for one in workloads:
        for each in one.containers:
            had = (getattr(each.current, f"{resource}_request") or 0) * one.instances
            should = (getattr(each.recommended, f"{resource}_request") or 0) * one.instances
            requested += had
            used += getattr(each.usage, resource)
            wasted += max(had - should, 0.0)
            missing += max(should - had, 0.0)
    return ResourceTotals(requested, used, wasted, missing)
