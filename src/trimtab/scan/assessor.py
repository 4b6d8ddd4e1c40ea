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
from trimtab.recommender.cohort import Learned, Sizing
from trimtab.recommender.workload import Assessment, assess
from trimtab.scan.cluster_snapshot import Picture
from trimtab.scan.model import Skipped, Surveyed, SurveyedContainer, lacks_requests
from trimtab.scan.pricing import Prices
from trimtab.scan.risk import Risk, risks, severity
from trimtab.scan.usage_model import Lessons
from trimtab.scan.usage_totals import Consumed
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.policy_rules import Caution, Rules
from trimtab.sizing.proposal import Ask, Proposal
from trimtab.sizing.qos import BEST_EFFORT, qos_class
from trimtab.sizing.recommendation import MIB, Factor, Recommendation, amount_text
from trimtab.usage.pod_ownership import WorkloadContainer

DAY = 86400.0

HEADROOM = 0.15
"""What a container that comes close to its memory limit is given above its highest peak."""


NOT_SYNCED = PodSync(enabled=False)
"""A survey does not know whether an operator resizes new pods, so that each counts with what it requests."""


class _Seen(NamedTuple):
    """What is known of one container, whatever is made of it."""

    container: Container
    learned: Learned | None
    evidence: Evidence
    consumed: Consumed
    risks: tuple[Risk, ...]


class Judge:
    """Turns what was learned into what is said of each workload."""

    def __init__(
        self,
        picture: Picture,
        lessons: Lessons,
        sizings: Mapping[str, Sizing],
        prices: Prices,
        source: str,
        now: float,
    ) -> None:
        self._picture, self._lessons, self._prices = picture, lessons, prices
        self._sizing, *self._others = sizings.values()
        self._source, self._now = source, now
        lessons.tell_of_kills()

    def surveyed(self, workload: Workload) -> Surveyed | Skipped:
        # During a rollout those that leave are there beside those that take their place.
        pods = tuple(pod for pod in self._picture.pods_of(workload) if not pod.deleting)
        seen = {
            each.name: self._seen(workload, each) for each in effective_containers(workload, pods, NOT_SYNCED)
        }
        assessment = self._assess(workload, pods, seen)
        if reason := _nothing_to_say(assessment, seen):
            return Skipped(workload.key, reason, self._picture.makes(workload))
        mean = max((each.consumed.pods for each in seen.values()), default=0.0)
        instances = float(len(pods) or workload.replicas) if workload.runs_on else mean
        containers = tuple(
            self._container(workload, each, seen[each.container], instances=instances)
            for each in assessment.recommendations
        )
        return Surveyed(
            workload=workload,
            makes=self._picture.makes(workload),
            pods=pods,
            containers=containers,
            instances=instances,
            confidence=_confidence(containers),
            cost=instances * sum(self._prices.of(each.has) for each in containers),
        )

    def _seen(self, workload: Workload, container: Container) -> _Seen:
        learned = self._learned(workload, container.name, self._sizing)
        evidence = learned.evidence if learned else Evidence()
        consumed = self._lessons.consumption.of(
            WorkloadContainer.of(workload.key, container.name),
            resting_since=math.inf if workload.runs_on else workload.created,
        )
        found = risks(container, evidence, consumed, rules=Rules(), now=self._now)
        return _Seen(container, learned, evidence, consumed, found)

    def _assess(self, workload: Workload, pods: Sequence[Pod], seen: Mapping[str, _Seen]) -> Assessment:
        hurt = any(each.risks for each in seen.values())

        def learned(container: str) -> Learned | None:
            found = seen[container].learned
            return found._replace(proposal=_out_of_danger(found.proposal, seen[container])) if found else None

        qos = qos_class(each.resources for each in workload.containers)
        return assess(
            workload,
            pods,
            rules=_rules(keep_qos=qos != BEST_EFFORT, hurt=hurt),
            learned=learned,
            around=self._picture.around(workload, replicas=len(pods) or workload.replicas),
            source=self._source,
            now=self._now,
            sync=NOT_SYNCED,
        )

    def _learned(self, workload: Workload, container: str, sizing: Sizing) -> Learned | None:
        name = WorkloadContainer.of(workload.key, container)
        return self._lessons.learned(name, sizing, now=self._now, runs_on=workload.runs_on)

    def _container(
        self, workload: Workload, recommendation: Recommendation, seen: _Seen, *, instances: float
    ) -> SurveyedContainer:
        has, should = seen.container.resources, recommendation.resources
        saving = instances * (self._prices.of(has) - self._prices.of(should))
        return SurveyedContainer(
            name=recommendation.container,
            role=seen.container.role,
            has=has,
            recommendation=recommendation,
            evidence=seen.evidence,
            consumed=seen.consumed,
            risks=seen.risks,
            severity=severity(
                seen.risks, has, should, instances=instances, lacks_requests=lacks_requests(has)
            ),
            saving=saving,
            compared={
                other.strategy: _bare(self._learned(workload, recommendation.container, other))
                for other in self._others
            },
        )


def _rules(*, keep_qos: bool, hurt: bool) -> Rules:
    """The default policy's, with limits that follow their requests, and no hurry to mind. A survey shows where to go, not
    the next step.

    A pod without any request may be given one: that changes its QoS class, and is what a survey is for. Where a
    container is in danger, no change is too small.
    """
    spec = OptimizationPolicySpec(update_strategy=UpdateStrategy(update_requests_only=False))
    rules = Rules.of(
        spec, Caution(samples=1, smallest_cpu=0, smallest_memory=0) if hurt else Caution(samples=1)
    )
    return msgspec.structs.replace(
        rules.without_steps(),
        minimum_change=0.0 if hurt else rules.minimum_change,
        minimum_history=0.0,
        keep_qos=keep_qos,
    )


def _out_of_danger(proposal: Proposal, seen: _Seen) -> Proposal:
    """For a container in danger any change is worth making, and memory covers its highest peak with some headroom."""
    if not seen.risks:
        return proposal
    cpu, memory, facts = proposal.cpu.target, proposal.memory.target, proposal.facts
    safe = seen.consumed.memory_peak * (1 + HEADROOM)
    if "OOM" in seen.risks and memory < safe:
        peak = amount_text("memory", round(seen.consumed.memory_peak))
        why = (
            f"at least its highest peak of {peak} and {HEADROOM:.0%}, not the strategy's {memory / MIB:.0f}Mi"
        )
        memory, facts = safe, (*facts, Factor("memory danger", why, "usage"))
    return msgspec.structs.replace(
        proposal, cpu=Ask(cpu, cpu, cpu), memory=Ask(memory, memory, memory), facts=facts
    )


def _nothing_to_say(assessment: Assessment, seen: Mapping[str, _Seen]) -> str:
    """Why a workload is skipped; one in danger never is, even where nothing can be done about it."""
    if any(each.risks for each in seen.values()):
        return ""
    if not any(each.evidence.samples for each in seen.values()):
        return "no usage of it was seen in the window"
    return assessment.held


def _bare(learned: Learned | None) -> Resources:
    """What a strategy proposes by itself."""
    if learned is None:
        return Resources()
    cpu, memory = learned.proposal.cpu.target, learned.proposal.memory.target
    return Resources(
        cpu_request=None if math.isnan(cpu) else round(cpu),
        memory_request=None if math.isnan(memory) else round(memory),
    )


def _confidence(containers: Sequence[SurveyedContainer]) -> str:
    known = min((each.evidence.observed for each in containers), default=0.0)
    return "high" if known >= 7 * DAY else "medium" if known >= DAY else "low"
