"""From what was seen of a workload to what is said of it: the operator's own judgement, without its hurry.

A survey gives whole recommendations: how fast to get there, and whether at all, is for whoever acts on them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from trimtab.actuation.effective_size import PodSync, effective_containers
from trimtab.api.optimizationpolicy import OptimizationPolicySpec, UpdateStrategy
from trimtab.kube.kinds.pods import Container, Pod, Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.recommender.cohort import ContainerEstimate, StrategySpec
from trimtab.recommender.workload import WorkloadRecommendation, recommend_workload
from trimtab.scan.cluster_snapshot import ClusterSnapshot
from trimtab.scan.model import ContainerFinding, SkippedWorkload, WorkloadFinding, lacks_requests
from trimtab.scan.pricing import ResourcePrices
from trimtab.scan.risk import Risk, assess_risks, rate_severity
from trimtab.scan.usage_model import UsageModel
from trimtab.scan.usage_totals import UsageTotals
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.policy_rules import PolicyRules, SafetyDefaults
from trimtab.sizing.proposal import Proposal, ResourceTarget
from trimtab.sizing.qos import BEST_EFFORT, qos_class
from trimtab.sizing.recommendation import MIB, Factor, Recommendation, format_amount
from trimtab.usage.pod_ownership import WorkloadContainer

DAY = 86400.0

HEADROOM = 0.15
"""What a container that comes close to its memory limit is given above its highest peak."""


NOT_SYNCED = PodSync(enabled=False)
"""A survey does not know whether an operator resizes new pods, so that each counts with what it requests."""


class _ContainerData(NamedTuple):
    """What is known of one container, whatever is made of it."""

    container: Container
    estimate: ContainerEstimate | None
    evidence: Evidence
    usage: UsageTotals
    risks: tuple[Risk, ...]


class Assessor:
    """Turns what was learned into what is said of each workload."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        usage_model: UsageModel,
        strategy_specs: Mapping[str, StrategySpec],
        prices: ResourcePrices,
        source: str,
        now: float,
    ) -> None:
        self._snapshot, self._usage_model, self._prices = snapshot, usage_model, prices
        self._strategy_spec, *self._compared_specs = strategy_specs.values()
        self._source, self._now = source, now
        usage_model.observe_ooms()

    def assess(self, workload: Workload) -> WorkloadFinding | SkippedWorkload:
        # During a rollout those that leave are there beside those that take their place.
        pods = tuple(pod for pod in self._snapshot.list_pods(workload) if not pod.deleting)
        seen = {
            each.name: self._read_container(workload, each)
            for each in effective_containers(workload, pods, NOT_SYNCED)
        }
        assessment = self._recommend(workload, pods, seen)
        if reason := _skip_reason(assessment, seen):
            return SkippedWorkload(workload.key, reason, self._snapshot.list_owned_by(workload))
        mean = max((each.usage.pods for each in seen.values()), default=0.0)
        instances = float(len(pods) or workload.replicas) if workload.is_long_running else mean
        containers = tuple(
            self._build_finding(workload, each, seen[each.container], instances=instances)
            for each in assessment.recommendations
        )
        return WorkloadFinding(
            workload=workload,
            owned=self._snapshot.list_owned_by(workload),
            pods=pods,
            containers=containers,
            instances=instances,
            confidence=_rate_confidence(containers),
            cost=instances * sum(self._prices.price_requests(each.current) for each in containers),
        )

    def _read_container(self, workload: Workload, container: Container) -> _ContainerData:
        learned = self._estimate(workload, container.name, self._strategy_spec)
        evidence = learned.evidence if learned else Evidence()
        consumed = self._usage_model.totals.get(
            WorkloadContainer.from_workload(workload.key, container.name),
            resting_since=math.inf if workload.is_long_running else workload.created,
        )
        found = assess_risks(container, evidence, consumed, rules=PolicyRules(), now=self._now)
        return _ContainerData(container, learned, evidence, consumed, found)

    def _recommend(
        self, workload: Workload, pods: Sequence[Pod], seen: Mapping[str, _ContainerData]
    ) -> WorkloadRecommendation:
        hurt = any(each.risks for each in seen.values())

        def learned(container: str) -> ContainerEstimate | None:
            found = seen[container].estimate
            return (
                found._replace(proposal=_raise_above_peak(found.proposal, seen[container])) if found else None
            )

        qos = qos_class(each.resources for each in workload.containers)
        return recommend_workload(
            workload,
            pods,
            rules=_build_rules(keep_qos=qos != BEST_EFFORT, at_risk=hurt),
            estimate=learned,
            constraints=self._snapshot.constraints_for(workload, replicas=len(pods) or workload.replicas),
            source=self._source,
            now=self._now,
            sync=NOT_SYNCED,
        )

    def _estimate(
        self, workload: Workload, container: str, strategy_spec: StrategySpec
    ) -> ContainerEstimate | None:
        name = WorkloadContainer.from_workload(workload.key, container)
        return self._usage_model.estimate(
            name, strategy_spec, now=self._now, is_long_running=workload.is_long_running
        )

    def _build_finding(
        self, workload: Workload, recommendation: Recommendation, seen: _ContainerData, *, instances: float
    ) -> ContainerFinding:
        has, should = seen.container.resources, recommendation.resources
        saving = instances * (self._prices.price_requests(has) - self._prices.price_requests(should))
        return ContainerFinding(
            name=recommendation.container,
            role=seen.container.role,
            current=has,
            recommendation=recommendation,
            evidence=seen.evidence,
            usage=seen.usage,
            risks=seen.risks,
            severity=rate_severity(
                seen.risks, has, should, instances=instances, lacks_requests=lacks_requests(has)
            ),
            saving=saving,
            compared={
                other.strategy: _bare_target(self._estimate(workload, recommendation.container, other))
                for other in self._compared_specs
            },
        )


def _build_rules(*, keep_qos: bool, at_risk: bool) -> PolicyRules:
    """The default policy's, with limits that follow their requests, and no hurry to mind. A survey shows where to go, not
    the next step.

    A pod without any request may be given one: that changes its QoS class, and is what a survey is for. Where a
    container is in danger, no change is too small.
    """
    spec = OptimizationPolicySpec(update_strategy=UpdateStrategy(update_requests_only=False))
    rules = PolicyRules.from_spec(
        spec,
        SafetyDefaults(min_samples=1, min_cpu_change=0, min_memory_change=0)
        if at_risk
        else SafetyDefaults(min_samples=1),
    )
    return msgspec.structs.replace(
        rules.without_step_limits(),
        minimum_change=0.0 if at_risk else rules.minimum_change,
        minimum_history=0.0,
        keep_qos=keep_qos,
    )


def _raise_above_peak(proposal: Proposal, seen: _ContainerData) -> Proposal:
    """For a container in danger any change is worth making, and memory covers its highest peak with some headroom."""
    if not seen.risks:
        return proposal
    cpu, memory, facts = proposal.cpu.target, proposal.memory.target, proposal.facts
    safe = seen.usage.memory_peak * (1 + HEADROOM)
    if "OOM" in seen.risks and memory < safe:
        peak = format_amount("memory", round(seen.usage.memory_peak))
        why = (
            f"at least its highest peak of {peak} and {HEADROOM:.0%}, not the strategy's {memory / MIB:.0f}Mi"
        )
        memory, facts = safe, (*facts, Factor("memory danger", why, "usage"))
    return msgspec.structs.replace(
        proposal,
        cpu=ResourceTarget(cpu, cpu, cpu),
        memory=ResourceTarget(memory, memory, memory),
        facts=facts,
    )


def _skip_reason(assessment: WorkloadRecommendation, seen: Mapping[str, _ContainerData]) -> str:
    """Why a workload is skipped; one in danger never is, even where nothing can be done about it."""
    if any(each.risks for each in seen.values()):
        return ""
    if not any(each.evidence.samples for each in seen.values()):
        return "no usage of it was seen in the window"
    return assessment.no_change_reason


def _bare_target(estimate: ContainerEstimate | None) -> Resources:
    """What a strategy proposes by itself."""
    if estimate is None:
        return Resources()
    cpu, memory = estimate.proposal.cpu.target, estimate.proposal.memory.target
    return Resources(
        cpu_request=None if math.isnan(cpu) else round(cpu),
        memory_request=None if math.isnan(memory) else round(memory),
    )


def _rate_confidence(containers: Sequence[ContainerFinding]) -> str:
    known = min((each.evidence.observed_seconds for each in containers), default=0.0)
    return "high" if known >= 7 * DAY else "medium" if known >= DAY else "low"
