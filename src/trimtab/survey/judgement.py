"""From what was seen of a workload to what is said of it: the operator's own judgement, without its hurry.

A survey gives whole recommendations: how fast to get there, and whether at all, is for whoever acts on them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from trimtab.api.optimizationpolicy import OptimizationPolicySpec, UpdateStrategy
from trimtab.kube.pods import Pod, Resources, Role
from trimtab.kube.workloads import Workload
from trimtab.operator.assessment import Assessment, as_they_run, assess, runs_on
from trimtab.operator.cohort import Learned, Sizing
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.qos import BEST_EFFORT, qos_class
from trimtab.sizing.recommendation import Recommendation
from trimtab.sizing.rules import Caution, Rules
from trimtab.survey.consumption import Consumed
from trimtab.survey.findings import Skipped, Surveyed, SurveyedContainer, lacks_requests
from trimtab.survey.lessons import Lessons
from trimtab.survey.picture import Picture
from trimtab.survey.prices import Prices
from trimtab.survey.risk import risks, severity
from trimtab.usage.owners import WorkloadContainer

DAY = 86400.0
FAR = 1e6
"""A change may be as large as it needs to be: a survey shows where to go, not the next step."""


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
        pods = self._picture.pods_of(workload)
        assessment = self._assess(workload, pods)
        if reason := _nothing_known(assessment):
            return Skipped(workload.key, reason)
        has = {each.name: (each.resources, each.role) for each in as_they_run(workload, pods)}
        consumed = {
            each.container: self._lessons.consumption.of(WorkloadContainer.of(workload.key, each.container))
            for each in assessment.recommendations
        }
        mean = max((each.pods for each in consumed.values()), default=0.0)
        instances = float(len(pods) or workload.replicas) if runs_on(workload) else mean
        containers = tuple(
            self._container(
                workload,
                each,
                has=has.get(each.container, (Resources(), "main")),
                evidence=assessment.evidence.get(each.container, Evidence()),
                consumed=consumed[each.container],
                instances=instances,
            )
            for each in assessment.recommendations
        )
        return Surveyed(
            workload=workload,
            pods=pods,
            containers=containers,
            instances=instances,
            confidence=_confidence(containers),
            cost=instances * sum(self._prices.of(each.has) for each in containers),
            recommended_cost=instances * sum(self._prices.of(each.should) for each in containers),
        )

    def _assess(self, workload: Workload, pods: Sequence[Pod]) -> Assessment:
        def learned(container: str) -> Learned | None:
            return self._learned(workload, container, self._sizing)

        return assess(
            workload,
            pods,
            rules=_rules(keep_qos=qos_class(each.resources for each in workload.containers) != BEST_EFFORT),
            learned=learned,
            around=self._picture.around(workload, replicas=len(pods) or workload.replicas),
            source=self._source,
            now=self._now,
        )

    def _learned(self, workload: Workload, container: str, sizing: Sizing) -> Learned | None:
        name = WorkloadContainer.of(workload.key, container)
        return self._lessons.learned(name, sizing, now=self._now, runs_on=runs_on(workload))

    def _container(
        self,
        workload: Workload,
        recommendation: Recommendation,
        *,
        has: tuple[Resources, Role],
        evidence: Evidence,
        consumed: Consumed,
        instances: float,
    ) -> SurveyedContainer:
        resources, role = has
        found = risks(resources, evidence, consumed)
        wasted = instances * (self._prices.of(resources) - self._prices.of(recommendation.resources))
        return SurveyedContainer(
            name=recommendation.container,
            role=role,
            has=resources,
            recommendation=recommendation,
            evidence=evidence,
            consumed=consumed,
            risks=found,
            severity=severity(
                found=found,
                wasted=wasted,
                changes=recommendation.resources != resources,
                lacks_requests=lacks_requests(resources),
            ),
            compared={
                other.strategy: _bare(self._learned(workload, recommendation.container, other))
                for other in self._others
            },
        )


def _rules(*, keep_qos: bool) -> Rules:
    """The default policy's, with limits that follow their requests, and no hurry to mind.

    A pod without any request may be given one: that changes its QoS class, and is what a survey is for.
    """
    spec = OptimizationPolicySpec(update_strategy=UpdateStrategy(update_requests_only=False))
    rules = Rules.of(spec, Caution(samples=1))
    return msgspec.structs.replace(
        rules,
        cpu=msgspec.structs.replace(rules.cpu, increase=FAR, decrease=1.0),
        memory=msgspec.structs.replace(rules.memory, increase=FAR, decrease=1.0),
        minimum_history=0.0,
        keep_qos=keep_qos,
    )


def _nothing_known(assessment: Assessment) -> str:
    known = [found.samples for found in assessment.evidence.values()]
    if not any(known):
        return "no usage of it was seen in the window"
    if all(each.held for each in assessment.recommendations):
        return assessment.held
    return ""


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
    known = min((each.evidence.last - each.evidence.first for each in containers), default=0.0)
    return "high" if known >= 7 * DAY else "medium" if known >= DAY else "low"
