"""Assess workloads with the operator's own rules, without its limits per step.

A scan reports the full recommendation. The pace of a change, and whether to make it, is up to whoever applies it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, get_args

import msgspec

from trimtab.actuation.effective_size import PodSync, effective_containers
from trimtab.api.optimizationpolicy import OptimizationPolicySpec, PolicyMode, UpdateStrategy
from trimtab.api.quantity import ResourceName, format_short, format_step
from trimtab.kube.kinds.pod_requests import BEST_EFFORT, qos_class
from trimtab.kube.kinds.pods import Container, Pod, Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.intent_index import IntentIndex
from trimtab.operator.paid_pods import count_paid_pods, mean_requests
from trimtab.operator.policy.resolver import EffectivePolicy, PolicyResolver, resolve_hold
from trimtab.recommender.cohort import ContainerEstimate, StrategySpec
from trimtab.recommender.workload import WorkloadRecommendation, recommend_workload
from trimtab.scan.model import (
    AppliedPolicy,
    ContainerFinding,
    SkippedWorkload,
    WorkloadFinding,
    is_missing_requests,
)
from trimtab.scan.pricing import ResourcePrices
from trimtab.scan.risk import Risk, assess_risks, rate_severity
from trimtab.scan.usage_model import UsageModel, UsageTotals
from trimtab.sizing.evidence import (
    Evidence,
    describe_learning,
    first_decrease,
    needed_memory,
)
from trimtab.sizing.policy_rules import PolicyRules, SafetyDefaults, describe_qos_obstacle
from trimtab.sizing.proposal import Proposal
from trimtab.sizing.recommendation import Factor, Recommendation
from trimtab.sizing.strategy import STRATEGIES
from trimtab.usage.pod_ownership import WorkloadContainer

DAY = 86400.0

NOT_SYNCED = PodSync(enabled=False)
"""Without a policy nobody brings new pods to a size in effect, so each pod counts with its own requests."""


class _ContainerData(NamedTuple):
    """The observations of one container, before any recommendation."""

    container: Container
    estimate: ContainerEstimate | None
    evidence: Evidence
    usage: UsageTotals
    risks: tuple[Risk, ...]


@dataclass(frozen=True, slots=True)
class ScanPolicies:
    """The policies of the cluster as a scan follows them."""

    resolver: PolicyResolver | None = None
    """None if policies are ignored."""
    can_resize_in_place: bool = True
    replacing_spec: StrategySpec | None = None
    """The strategy spec that replaces those of all policies, by the user's choice."""
    intents: IntentIndex | None = None
    """The Intents of the cluster; None if they are not known."""

    def resolve(self, workload: Workload) -> EffectivePolicy | None:
        """Return the policy that the operator sizes a workload by; None if there is none."""
        if self.resolver is None:
            return None
        watched = self.resolver.config.watch_namespaces
        return self.resolver.resolve(workload) if not watched or workload.namespace in watched else None

    def find_intent(self, workload: Workload) -> str:
        """Return the name of the Intent that controls the size of a workload; empty if none does."""
        if self.resolver is None or self.intents is None or not self.resolver.config.intents.enabled:
            return ""
        found = self.intents.controlling_intent(workload.key)
        return str(found) if found else ""

    def strategy_spec(self, policy: EffectivePolicy) -> StrategySpec:
        """Return the strategy spec of a policy; a scan has one source, so that of the policy does not count."""
        return (self.replacing_spec or policy.strategy_spec)._replace(source="")

    def pod_sync(self, workload: Workload, policy: EffectivePolicy | None, pods: Sequence[Pod]) -> PodSync:
        """Return how new pods get the size of a workload."""
        if policy is None or self.resolver is None:
            return NOT_SYNCED
        return self.resolver.pod_sync(
            workload,
            policy,
            pods,
            intent=self.find_intent(workload),
            can_resize_in_place=self.can_resize_in_place,
        )


class Assessor:
    """Turns the usage model into findings for each workload."""

    def __init__(
        self,
        state: ClusterState,
        usage_model: UsageModel,
        strategy_specs: Mapping[str, StrategySpec],
        prices: ResourcePrices,
        source: str,
        now: float,
        *,
        policies: ScanPolicies = ScanPolicies(),  # noqa: B008 - it is frozen
    ) -> None:
        self._policies = policies
        self._state, self._usage_model, self._prices = state, usage_model, prices
        self._constraints = state.build_constraints()
        self._strategy_spec, *self._compared_specs = strategy_specs.values()
        self._source, self._now = source, now
        usage_model.observe_ooms()

    def assess(self, workload: Workload) -> WorkloadFinding | SkippedWorkload:
        # During a rollout, terminating pods exist beside their replacements: count only the latter.
        pods = tuple(pod for pod in self._state.list_pods(workload) if not pod.deleting)
        policy = self._policies.resolve(workload)
        if policy and (reason := _find_policy_obstacle(policy)):
            return SkippedWorkload(workload.key, reason, self._state.list_owned(workload))
        observed = {
            each.name: self._read_container(workload, each, policy)
            for each in effective_containers(workload, pods, self._policies.pod_sync(workload, policy, pods))
        }
        recommendation = (
            self._recommend_under_policy(workload, policy, observed)
            if policy
            else self._recommend(workload, pods, observed)
        )
        if reason := _skip_reason(recommendation, observed):
            return SkippedWorkload(workload.key, reason, self._state.list_owned(workload))
        intent = self._policies.find_intent(workload)
        running = max((each.usage.pods for each in observed.values()), default=0.0)
        instances = count_paid_pods(workload, len(pods) or workload.replicas, running=running)
        requested = {
            each.name: each.resources
            for each in mean_requests([each.container for each in observed.values()], pods)
        }
        containers = tuple(
            self._build_finding(
                workload,
                each,
                observed[each.container],
                requested=requested[each.container],
                instances=instances,
            )
            for each in recommendation.recommendations
        )
        return WorkloadFinding(
            workload=workload,
            owned=self._state.list_owned(workload),
            pods=pods,
            containers=containers,
            instances=instances,
            confidence=_rate_confidence(containers),
            cost=instances * sum(self._prices.price_requests(requested[each.name]) for each in containers),
            operator_obstacle=self._find_blocked_reason(workload, policy, containers)
            if policy
            else (intent and f"Intent {intent} controls its size")
            or _find_operator_obstacle(workload, containers)
            or _find_young(containers, {name: each.container for name, each in observed.items()}),
            intent=intent,
            policy=self._describe_policy(policy) if policy else None,
        )

    def _describe_policy(self, policy: EffectivePolicy) -> AppliedPolicy:
        spec = self._policies.strategy_spec(policy)
        settings = STRATEGIES.parse_settings(spec.strategy, spec.decode_settings())
        return AppliedPolicy(
            policy.name,
            spec.strategy,
            settings.model_dump(),
            policy.rules.stabilization,
            policy.rules.minimum_change,
        )

    def _find_blocked_reason(
        self, workload: Workload, policy: EffectivePolicy, containers: Sequence[ContainerFinding]
    ) -> str:
        """Return why the operator does not make the recommended changes under this policy."""
        if self._policies.resolver is None or not any(each.has_changes for each in containers):
            return ""
        config = self._policies.resolver.config
        return policy.blocked_reason(
            workload,
            config,
            vpa=self._state.active_vpa(workload.key),
            intent=self._policies.find_intent(workload),
            hold=resolve_hold(workload, config),
        )

    def _read_container(
        self, workload: Workload, container: Container, policy: EffectivePolicy | None
    ) -> _ContainerData:
        spec = self._policies.strategy_spec(policy) if policy else self._strategy_spec
        estimate = self._estimate(workload, container.name, spec)
        evidence = estimate.evidence if estimate else Evidence()
        usage = self._usage_model.totals.get(
            WorkloadContainer.from_workload(workload.key, container.name),
            idle_since=math.inf if workload.is_long_running else workload.created,
        )
        rules = policy.rules if policy else PolicyRules()
        found = assess_risks(container, evidence, usage, rules=rules, now=self._now)
        return _ContainerData(container, estimate, evidence, usage, found)

    def _recommend_under_policy(
        self, workload: Workload, policy: EffectivePolicy, observed: Mapping[str, _ContainerData]
    ) -> WorkloadRecommendation:
        """Recommend what the operator would."""
        pods = self._state.list_pods(workload)
        return recommend_workload(
            workload,
            pods,
            rules=policy.rules_for(can_resize_in_place=self._policies.can_resize_in_place),
            estimate=lambda container: observed[container].estimate,
            constraints=self._constraints.constraints_for(
                workload, replicas=workload.replicas, hpas=self._state.list_hpas(workload)
            ),
            source=self._source,
            now=self._now,
            sync=self._policies.pod_sync(workload, policy, pods),
        )

    def _recommend(
        self, workload: Workload, pods: Sequence[Pod], observed: Mapping[str, _ContainerData]
    ) -> WorkloadRecommendation:
        at_risk = any(each.risks for each in observed.values())

        qos = qos_class(each.resources for each in workload.containers)
        rules = _build_rules(keep_qos=qos != BEST_EFFORT, at_risk=at_risk)

        def estimate(container: str) -> ContainerEstimate | None:
            found = observed[container]
            return found.estimate and found.estimate._replace(
                proposal=_raise_to_safe_size(found, found.estimate.proposal, rules, self._now)
            )

        return recommend_workload(
            workload,
            pods,
            rules=rules,
            estimate=estimate,
            constraints=self._constraints.constraints_for(
                workload, replicas=len(pods) or workload.replicas, hpas=self._state.list_hpas(workload)
            ),
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
        self,
        workload: Workload,
        recommendation: Recommendation,
        observed: _ContainerData,
        *,
        requested: Resources,
        instances: float,
    ) -> ContainerFinding:
        has, should = observed.container.resources, recommendation.target
        saving = instances * (self._prices.price_requests(requested) - self._prices.price_requests(should))
        return ContainerFinding(
            name=recommendation.container,
            role=observed.container.role,
            current=has,
            recommendation=recommendation,
            evidence=observed.evidence,
            usage=observed.usage,
            risks=observed.risks,
            severity=rate_severity(
                observed.risks, has, should, instances=instances, is_missing_requests=is_missing_requests(has)
            ),
            saving=saving,
            compared={
                other.strategy: _bare_target(self._estimate(workload, recommendation.container, other))
                for other in self._compared_specs
            },
        )


def _find_policy_obstacle(policy: EffectivePolicy) -> str:
    """Return why the operator recommends nothing under a policy; empty if it does."""
    if policy.problem:
        return f"policy {policy.name} cannot be used: {policy.problem}"
    return f"policy {policy.name} has the mode Disabled" if policy.spec.mode is PolicyMode.DISABLED else ""


def _build_rules(*, keep_qos: bool, at_risk: bool) -> PolicyRules:
    """Build the default policy's rules, with limits that follow their requests and without limits per step.

    A BestEffort pod may get requests although that changes its QoS class: missing requests are what a scan looks for.
    For a container at risk, no change is too small.
    """
    spec = OptimizationPolicySpec(update_strategy=UpdateStrategy(update_requests_only=False))
    rules = PolicyRules.from_spec(
        spec,
        SafetyDefaults(min_samples=1, min_cpu_change=0, min_memory_change=0)
        if at_risk
        else SafetyDefaults(min_samples=1),
    )
    # A scan has a window of the user's choice, and reports low confidence instead of refusing a short one.
    return msgspec.structs.replace(
        rules.without_step_limits(),
        minimum_change=0.0 if at_risk else rules.minimum_change,
        minimum_history=0.0,
        keep_qos=keep_qos,
    )


def _find_operator_obstacle(workload: Workload, containers: Sequence[ContainerFinding]) -> str:
    """Return why the default policy would not make the recommended changes; the scan itself may change any pod."""
    if not any(each.has_changes for each in containers):
        return ""
    default = OptimizationPolicySpec().update_strategy
    return describe_qos_obstacle(
        qos_class(each.resources for each in workload.containers),
        keeps_qos=default.keep_qos_class,
        keeps_limits=default.update_requests_only,
    )


def _find_young(findings: Sequence[ContainerFinding], containers: Mapping[str, Container]) -> str:
    """Return why the default policy would not lower something yet, if the scan would."""
    rules = PolicyRules()
    for each in sorted(findings, key=lambda each: each.evidence.observed_seconds):
        lowered = [resource for resource in get_args(ResourceName) if _is_lowered(each, resource)]
        # What restarts the container is changed once, after a day, and not at each step.
        restarts = {name: containers[each.name].restarts_on_resize(name) for name in lowered}
        waiting = [
            name
            for name in lowered
            if each.evidence.observed_seconds < first_decrease(each.evidence, rules, restarts=restarts[name])
        ]
        if waiting:
            learning = describe_learning(
                [each.evidence], rules, restarts=all(restarts[name] for name in waiting)
            )
            return learning if waiting == lowered else f"{' and '.join(waiting)}: {learning}"
    return ""


def _is_lowered(finding: ContainerFinding, resource: ResourceName) -> bool:
    field = f"{resource}_request"
    return (getattr(finding.recommended, field) or 0) < (getattr(finding.current, field) or 0)


def _raise_to_safe_size(
    observed: _ContainerData, proposal: Proposal, rules: PolicyRules, now: float
) -> Proposal:
    """Raise the memory target of a container at risk of OOM to the least that is safe: guards only limit decreases.

    The lower and upper bounds become the target, so that no guard drops the change as too small.
    """
    if not observed.risks:
        return proposal
    cpu, memory, facts = proposal.cpu.target, proposal.memory.target, proposal.facts
    safe = needed_memory(observed.container, evidence=observed.evidence, rules=rules, now=now)
    if "OOM" in observed.risks and safe and memory < safe:
        least = format_step("memory", safe)
        detail = f"at least {least} by its peak and OOM kills, instead of the strategy's {format_short('memory', memory)}"
        memory, facts = safe, (*facts, Factor("OOM risk", detail, "usage"))
    # The recent targets stay: a risk must not make the other resource smaller.
    return msgspec.structs.replace(
        proposal,
        cpu=msgspec.structs.replace(proposal.cpu, lower=cpu, upper=cpu),
        memory=msgspec.structs.replace(proposal.memory, target=memory, lower=memory, upper=memory),
        facts=facts,
    )


def _skip_reason(recommendation: WorkloadRecommendation, observed: Mapping[str, _ContainerData]) -> str:
    """Return why a workload is skipped, or an empty text; one at risk is never skipped, even without a remedy."""
    if any(each.risks for each in observed.values()):
        return ""
    if not any(each.evidence.samples for each in observed.values()):
        return "has no usage in the window"
    return recommendation.no_change_reason


def _bare_target(estimate: ContainerEstimate | None) -> Resources:
    """Return the requests that a strategy proposes without any guards."""
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
