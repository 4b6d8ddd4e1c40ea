"""By whom each workload is to be sized, and how, as policies and the configuration stand at this moment."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from trimtab.actuation.decide.maintenance_windows import next_opening
from trimtab.actuation.effective_size import PodSync
from trimtab.actuation.hold import Hold, read_hold
from trimtab.api.optimizationpolicy import (
    Bounds,
    ContainerBounds,
    OptimizationPolicySpec,
    PolicyMode,
    ResourceBounds,
    UpdateStrategy,
)
from trimtab.api.quantity import Quantity
from trimtab.errors import TrimtabError
from trimtab.kube.cache.projection import Labels
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.policies import Policy
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.resources import OPTIMIZATION_POLICIES
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.model import Guardrail, OperatorConfig
from trimtab.operator.config.org_limits import OrganisationLimits
from trimtab.operator.config.promql import find_query_problem
from trimtab.operator.policy.matching import MatchingPolicies
from trimtab.operator.policy.status_writer import DEFAULT_POLICY, PolicyKey
from trimtab.operator.policy.validation import GUARDRAIL_ANNOTATION, describe_unknown_source
from trimtab.recommender.cohort import StrategySpec
from trimtab.recommender.workload import strategy_spec_from_policy
from trimtab.sizing.policy_rules import PolicyRules, SafetyDefaults
from trimtab.sizing.strategy import STRATEGIES

B = TypeVar("B", ResourceBounds, ContainerBounds)
DAY = 86400.0


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """What holds for the workloads of one policy."""

    policy: Policy | None
    """None: that of the operator's configuration, for workloads that no policy selects."""
    spec: OptimizationPolicySpec
    rules: PolicyRules
    strategy_spec: StrategySpec
    problem: str = ""

    @property
    def key(self) -> PolicyKey:
        return self.policy.key if self.policy else DEFAULT_POLICY

    @property
    def name(self) -> str:
        return str(self.policy) if self.policy else "default"

    def update_strategy(self, config: OperatorConfig, *, now: float) -> UpdateStrategy:
        """How changes are made now: while none of the operator's own windows is open, by those instead of the policy's."""
        windows, strategy = config.maintenance_windows, self.spec.update_strategy
        if next_opening(windows, now=int(now)) == int(now):
            return strategy
        return strategy.model_copy(update={"windows": windows})

    def guardrails(self, config: OperatorConfig) -> tuple[Guardrail, ...]:
        """What is watched while a workload is changed: what the operator is told to, and the policy's own."""
        own = _guardrail_query(self.policy)
        return (*config.guardrails, Guardrail(name="policy", query=own)) if own else config.guardrails

    def blocked_reason(
        self,
        workload: Workload,
        config: OperatorConfig,
        *,
        vpa: str = "",
        intent: str = "",
        hold: Hold | None = None,
    ) -> str:
        """Why nothing may be changed in this workload, whatever is recommended; empty when it may.

        A hold without sizes stops new changes alone (`Wish.on_hold`): new pods still get the size that it is held at.
        """
        if config.dry_run:
            return "the operator runs with dryRun"
        if not self._may_resize(hold):
            return str(hold) if hold else f"the mode is {self.spec.mode}"
        if barred := _protected_reason(workload, config, vpa):
            return barred
        # A size that a person chose comes first: what is held at it is nobody else's.
        theirs = f"Intent {intent} has the say over its size; with active: false it leaves that to the policy"
        return theirs if intent and not (hold and hold.sizes) else ""

    def pod_sync(
        self,
        workload: Workload,
        pods: Iterable[Pod],
        config: OperatorConfig,
        *,
        vpa: str = "",
        intent: str = "",
        hold: Hold | None = None,
        can_resize_in_place: bool = True,
    ) -> PodSync:
        """Return the terms on which new pods come to the size of their workload, by this policy or by an Intent."""
        strategy = self.spec.update_strategy
        by_policy = self._may_resize(hold) and strategy.allow_in_place_resize
        barred = config.dry_run or _protected_reason(workload, config, vpa)
        named = {each for pod in pods for each in pod.containers}
        return PodSync(
            enabled=can_resize_in_place and bool(by_policy or intent) and not barred,
            startup_boost=strategy.startup_boost,
            excluded=self.rules.excluded_containers(named.union(workload.containers)),
        )

    def _may_resize(self, hold: Hold | None) -> bool:
        """Whether pods may be touched at all by the policy's mode, or since a person chose their size."""
        return self.spec.mode is PolicyMode.AUTO or bool(hold and hold.sizes)


class EffectivePolicies:
    """All mandates under one configuration; made anew when that changes."""

    def __init__(self, config: OperatorConfig) -> None:
        self.config = config
        self._by_uid: dict[str, EffectivePolicy] = {}
        default = config.default_policy
        self._default = self._build(None, default) if default else None
        self.default_strategy_spec = (
            self._default.strategy_spec
            if self._default
            else strategy_spec_from_policy(OptimizationPolicySpec())
        )
        """How containers are sized that no policy is about, for whoever asks."""

    def resolve(
        self, workload: Workload, verdict: MatchingPolicies, *, namespace: Labels
    ) -> EffectivePolicy | None:
        """That of the policy that wins, given the labels of the namespace; None when nobody wants it sized."""
        if verdict:
            return self.resolve_policy(verdict[0])
        if self._default is None or not self._default.spec.selector.matches(
            kind=workload.key.kind,
            namespace=workload.namespace,
            labels=dict(workload.labels),
            namespace_labels=dict(namespace),
        ):
            return None
        return self._default

    def resolve_policy(self, policy: Policy) -> EffectivePolicy:
        found = self._by_uid.get(policy.uid)
        if found is None or not (found.policy and policy.is_equivalent_to(found.policy)):
            found = self._by_uid[policy.uid] = self._build(policy, policy.spec)
        return found

    def forget_all_but(self, uids: Container[str]) -> None:
        """Let go of policies that are there no more."""
        self._by_uid = {uid: mandate for uid, mandate in self._by_uid.items() if uid in uids}

    def _build(self, policy: Policy | None, spec: OptimizationPolicySpec) -> EffectivePolicy:
        limits = self.config.limits
        bounded = _apply_org_limits(spec, limits)
        problems = limits.find_problems(spec)
        source = self.config.resolve_source(spec)
        if source is None:
            problems.append(describe_unknown_source(spec, self.config))
        sizing = strategy_spec_from_policy(spec)._replace(source=source or "")
        try:
            STRATEGIES.parse_settings(sizing.strategy, sizing.decode_settings())
        except TrimtabError as error:
            problems.append(f"spec.strategy: {error}")
        if (query := _guardrail_query(policy)) and (wrong := find_query_problem(query)):
            problems.append(f"metadata.annotations[{GUARDRAIL_ANNOTATION}]: {wrong}")
        return EffectivePolicy(
            policy=policy,
            spec=bounded,
            rules=PolicyRules.from_spec(
                bounded, SafetyDefaults(oom_history=max(self.config.learning.history.seconds, DAY))
            ),
            strategy_spec=sizing,
            problem="; ".join([policy.problem] if policy and policy.problem else problems),
        )


def _protected_reason(workload: Workload, config: OperatorConfig, vpa: str) -> str:
    """Why nobody but a VerticalPodAutoscaler may touch the pods of a workload; empty when others may."""
    if workload.namespace in config.limits.untouched_namespaces:
        return f"namespace {workload.namespace} is never touched, see limits.untouchedNamespaces"
    if vpa:
        return (
            f"VerticalPodAutoscaler {vpa} changes its pods; with updateMode Off it leaves that to the policy"
        )
    return ""


def _guardrail_query(policy: Policy | None) -> str:
    return dict(policy.annotations).get(GUARDRAIL_ANNOTATION, "") if policy else ""


def _apply_org_limits(spec: OptimizationPolicySpec, limits: OrganisationLimits) -> OptimizationPolicySpec:
    """With the organisation's maxima where the policy states none."""

    def bound(stated: Bounds | None, most: Quantity | None) -> Bounds | None:
        is_open = stated is not None and stated.max is None and most is not None
        return stated.model_copy(update={"max": most}) if stated and is_open else stated

    def both(stated: B) -> B:
        held = {"cpu": bound(stated.cpu, limits.max_cpu), "memory": bound(stated.memory, limits.max_memory)}
        return stated.model_copy(update=held)

    if not limits.default_maxima(spec):
        return spec  # and no copy of it for each of thousands of policies
    containers = [
        each.model_copy(update={"resource_bounds": both(each.resource_bounds)}) for each in spec.containers
    ]
    return spec.model_copy(
        update={"resource_bounds": both(spec.resource_bounds), "containers": tuple(containers)}
    )


class PolicyResolver:
    """Asked anew each time: both may change at any time."""

    def __init__(self, cluster_state: ClusterState, config: Callable[[], OperatorConfig]) -> None:
        self._cluster_state = cluster_state
        self._config = config
        self._policies = EffectivePolicies(config())

    @property
    def config(self) -> OperatorConfig:
        return self._config()

    def resolve(self, workload: Workload) -> EffectivePolicy | None:
        """On whose word a workload is sized; None when on nobody's."""
        namespace = self._cluster_state.namespaces.get(workload.namespace)
        verdict = self._cluster_state.policy_matcher.match(workload)
        found = self._current_policies().resolve(
            workload, verdict, namespace=namespace.labels if namespace else ()
        )
        # One that it gives way to may be among those that are not known, as one with mode Disabled.
        if (
            found
            and found.policy is None
            and (why := self._cluster_state.unsynced_reason(OPTIMIZATION_POLICIES))
        ):
            return replace(found, problem=f"the OptimizationPolicies, which go first, cannot be read: {why}")
        return found

    def pod_sync(
        self,
        workload: Workload,
        policy: EffectivePolicy | None,
        pods: Iterable[Pod],
        *,
        intent: str = "",
        can_resize_in_place: bool = True,
    ) -> PodSync:
        """Return the terms on which new pods of a workload come to its size: by its policy, or by an Intent."""
        if policy is None:
            return PodSync(enabled=bool(intent))
        return policy.pod_sync(
            workload,
            pods,
            self.config,
            vpa=self._cluster_state.active_vpa(workload.key),
            intent=intent,
            hold=read_hold(workload.annotations),
            can_resize_in_place=can_resize_in_place,
        )

    def resolve_policy(self, policy: Policy) -> EffectivePolicy:
        return self._current_policies().resolve_policy(policy)

    def resolve_strategy(self, policy: EffectivePolicy | None, *, is_required: bool) -> StrategySpec | None:
        """How a workload is sized, by a policy or because a VPA asked; None when nobody does."""
        if policy and not policy.problem:
            return policy.strategy_spec
        return self._current_policies().default_strategy_spec if is_required else None

    def forget_deleted(self) -> None:
        """Let go of policies that are there no more."""
        self._current_policies().forget_all_but({policy.uid for policy in self._cluster_state.policies})

    def _current_policies(self) -> EffectivePolicies:
        if self._policies.config is not self._config():
            self._policies = EffectivePolicies(self._config())
        return self._policies
