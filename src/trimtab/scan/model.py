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
from trimtab.scan.pricing import Prices
from trimtab.scan.risk import Risk, Severity
from trimtab.scan.usage_totals import Consumed
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.recommendation import Recommendation, ResourceName


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedContainer:
    """One container of a workload; amounts are of one replica, but for what all of them consumed."""

    name: str
    role: Role
    has: Resources
    recommendation: Recommendation
    evidence: Evidence
    consumed: Consumed
    risks: tuple[Risk, ...]
    severity: Severity
    saving: float
    """Money a month, of all its replicas; negative where it should have more."""
    compared: Mapping[str, Resources]
    """What other strategies would request, by their names: their bare targets, without our guards."""

    @property
    def should(self) -> Resources:
        """What it should have."""
        return self.recommendation.resources

    @property
    def changes(self) -> bool:
        return self.should != self.has

    @property
    def lacks_requests(self) -> bool:
        return lacks_requests(self.has)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """One workload."""

    workload: Workload
    pods: tuple[Pod, ...]
    containers: tuple[SurveyedContainer, ...]
    instances: float
    """How many pods are paid for: those that run, or of a Job and CronJob the mean over the window."""
    confidence: str
    """low, medium or high: by how long its usage is known."""
    cost: float
    """Money a month for what it requests now."""
    makes: tuple[WorkloadKey, ...] = ()
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
class Skipped:
    """A workload of which nothing can be said, and why."""

    key: WorkloadKey
    reason: str
    makes: tuple[WorkloadKey, ...] = ()
    """The workloads that it owns."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """One resource over all workloads, in millicores or bytes."""

    requested: float = 0.0
    used: float = 0.0
    wasted: float = 0.0
    """Requested beyond what is recommended,"""
    missing: float = 0.0
    """and recommended beyond what is requested."""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """All that was found in one cluster."""

    context: str
    server: str
    source: str
    """Where usage came from, and how well it is known."""
    at: float
    """Seconds since 1970."""
    window: float
    step: float
    """Seconds from one sample to the next."""
    strategy: str
    settings: Mapping[str, Any]
    """Of the strategy, all of them."""
    prices: Prices
    workloads: tuple[Surveyed, ...]
    """What matters most comes first."""
    skipped: tuple[Skipped, ...]
    refused: Mapping[str, str]
    """Namespaces that we may not see, and what the server said."""
    troubles: Mapping[str, str]
    """What else is missing from the picture, by resource."""
    compared: tuple[str, ...] = ()

    @cached_property
    def cpu(self) -> Amounts:
        return _total(self.workloads, "cpu")

    @cached_property
    def memory(self) -> Amounts:
        return _total(self.workloads, "memory")

    @property
    def cost(self) -> float:
        """Money a month for all that is requested."""
        return sum(each.cost for each in self.workloads)

    @property
    def wasted(self) -> float:
        """Money a month that is requested beyond what is recommended."""
        return self.prices.of_cpu(self.cpu.wasted) + self.prices.of_memory(self.memory.wasted)

    @property
    def missing(self) -> float:
        """Money a month that should be requested besides."""
        return self.prices.of_cpu(self.cpu.missing) + self.prices.of_memory(self.memory.missing)

    def at_risk(self, risk: Risk) -> int:
        """How many containers are in this danger; replicas are one."""
        return sum(risk in each.risks for one in self.workloads for each in one.containers)

    @property
    def at_any_risk(self) -> int:
        """How many are in any: one that is in two is one."""
        return sum(bool(each.risks) for one in self.workloads for each in one.containers)

    @property
    def without_requests(self) -> int:
        return sum(each.lacks_requests for one in self.workloads for each in one.containers)


def unseen(context: str, why: str, *, at: float, window: float, strategy: str, prices: Prices) -> Survey:
    """Of a cluster that could not be looked at: nothing but that, so that a report of several does not pass for one of all."""
    return Survey(
        context=context,
        server="",
        source="none was read",
        at=at,
        window=window,
        step=0.0,
        strategy=strategy,
        settings={},
        prices=prices,
        workloads=(),
        skipped=(),
        refused={},
        troubles={"this cluster": why},
    )


def lacks_requests(has: Resources) -> bool:
    """Whether the scheduler has to guess: with a limit alone, that is what is requested."""
    return has.cpu_request is has.cpu_limit is None or has.memory_request is has.memory_limit is None


def _total(workloads: Iterable[Surveyed], resource: ResourceName) -> Amounts:
    requested = used = wasted = missing = 0.0
    for one in workloads:
        for each in one.containers:
            had = (getattr(each.has, f"{resource}_request") or 0) * one.instances
            should = (getattr(each.should, f"{resource}_request") or 0) * one.instances
            requested += had
            used += getattr(each.consumed, resource)
            wasted += max(had - should, 0.0)
            missing += max(should - had, 0.0)
    return Amounts(requested, used, wasted, missing)
