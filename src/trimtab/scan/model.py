"""What a survey finds, as records: each container and workload, what was skipped, and what it all comes to.

Amounts are millicores and bytes, money is a month's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trimtab.kube.kinds.pods import Pod, Resources, Role
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.scan.pricing import ResourcePrices
from trimtab.scan.risk import Risk, Severity
from trimtab.scan.usage_totals import UsageTotals
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.recommendation import Recommendation, ResourceName


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFinding:
    """One container of a workload; amounts are of one replica, but for what all of them consumed."""

    name: str
    role: Role
    current: Resources
    recommendation: Recommendation
    evidence: Evidence
    usage: UsageTotals
    risks: tuple[Risk, ...]
    severity: Severity
    saving: float
    """Money a month, of all its replicas; negative where it should have more."""
    compared: Mapping[str, Resources]
    """What other strategies would request, by their names: their bare targets, without our guards."""

    @property
    def recommended(self) -> Resources:
        """What it should have."""
        return self.recommendation.resources

    @property
    def has_changes(self) -> bool:
        return self.recommended != self.current

    @property
    def lacks_requests(self) -> bool:
        return lacks_requests(self.current)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFinding:
    """One workload."""

    workload: Workload
    pods: tuple[Pod, ...]
    containers: tuple[ContainerFinding, ...]
    instances: float
    """How many pods are paid for: those that run, or of a Job and CronJob the mean over the window."""
    confidence: str
    """low, medium or high: by how long its usage is known."""
    cost: float
    """Money a month for what it requests now."""
    owned: tuple[WorkloadKey, ...] = ()
    """The workloads that it owns, as an operator's own kind owns StatefulSets."""

    @property
    def key(self) -> WorkloadKey:
        return self.workload.key

    @property
    def replicas(self) -> int:
        return len(self.pods) or self.workload.replicas

    @property
    def recommendations(self) -> tuple[Recommendation, ...]:
        return tuple(each.recommendation for each in self.containers)

    @property
    def evidence(self) -> dict[str, Evidence]:
        return {each.name: each.evidence for each in self.containers}

    @property
    def saving(self) -> float:
        """Money a month; negative where it should have more."""
        return sum(each.saving for each in self.containers)

    @property
    def severity(self) -> Severity:
        return max((each.severity for each in self.containers), default=Severity.NONE)


@dataclass(frozen=True, slots=True)
class SkippedWorkload:
    """A workload of which nothing can be said, and why."""

    key: WorkloadKey
    reason: str
    owned: tuple[WorkloadKey, ...] = ()
    """The workloads that it owns."""


@dataclass(frozen=True, slots=True)
class ResourceTotals:
    """One resource over all workloads, in millicores or bytes."""

    requested: float = 0.0
    used: float = 0.0
    wasted: float = 0.0
    """Requested beyond what is recommended,"""
    missing: float = 0.0
    """and recommended beyond what is requested."""


@dataclass(frozen=True, kw_only=True)
class ScanResult:
    """All that was found in one cluster."""

    context: str
    server: str
    source: str
    """Where usage came from, and how well it is known."""
    scanned_at: float
    """Seconds since 1970."""
    window: float
    step: float
    """Seconds from one sample to the next."""
    strategy: str
    settings: Mapping[str, Any]
    """Of the strategy, all of them."""
    prices: ResourcePrices
    workloads: tuple[WorkloadFinding, ...]
    """What matters most comes first."""
    skipped: tuple[SkippedWorkload, ...]
    forbidden_namespaces: Mapping[str, str]
    """Namespaces that we may not see, and what the server said."""
    errors_by_resource: Mapping[str, str]
    """What else is missing from the picture, by resource."""
    compared: tuple[str, ...] = ()

    @cached_property
    def cpu(self) -> ResourceTotals:
        return _sum_resource(self.workloads, "cpu")

    @cached_property
    def memory(self) -> ResourceTotals:
        return _sum_resource(self.workloads, "memory")

    @property
    def cost(self) -> float:
        """Money a month for all that is requested."""
        return sum(each.cost for each in self.workloads)

    @property
    def wasted(self) -> float:
        """Money a month that is requested beyond what is recommended."""
        return self.prices.price_cpu(self.cpu.wasted) + self.prices.price_memory(self.memory.wasted)

    @property
    def missing(self) -> float:
        """Money a month that should be requested besides."""
        return self.prices.price_cpu(self.cpu.missing) + self.prices.price_memory(self.memory.missing)

    def count_at_risk(self, risk: Risk) -> int:
        """How many containers are in this danger; replicas are one."""
        return sum(risk in each.risks for one in self.workloads for each in one.containers)

    @property
    def at_risk_total(self) -> int:
        """How many are in any: one that is in two is one."""
        return sum(bool(each.risks) for one in self.workloads for each in one.containers)

    @property
    def without_requests(self) -> int:
        return sum(each.lacks_requests for one in self.workloads for each in one.containers)


def build_failed_scan(
    context: str, why: str, *, at: float, window: float, strategy: str, prices: ResourcePrices
) -> ScanResult:
    """Of a cluster that could not be looked at: nothing but that, so that a report of several does not pass for one of all."""
    return ScanResult(
        context=context,
        server="",
        source="none was read",
        scanned_at=at,
        window=window,
        step=0.0,
        strategy=strategy,
        settings={},
        prices=prices,
        workloads=(),
        skipped=(),
        forbidden_namespaces={},
        errors_by_resource={"this cluster": why},
    )


def lacks_requests(current: Resources) -> bool:
    """Whether the scheduler has to guess: with a limit alone, that is what is requested."""
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
