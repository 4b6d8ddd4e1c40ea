"""Resolve the policy of each workload from the current policies and configuration."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from trimtab.actuation.decide.maintenance_windows import next_opening
from trimtab.actuation.effective_size import PodSync
from trimtab.actuation.hold import Hold, read_hold
from trimtab.actuation.resources import SizeLimits, container_sizes
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
from trimtab.kube.rest.resources import NAMESPACES, OPTIMIZATION_POLICIES
from trimtab.namespace_cache import BudgetExhausted, NamespaceBudget
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.model import Guardrail, OperatorConfig
from trimtab.operator.config.org_limits import OrganisationLimits
from trimtab.operator.policy.validation import GUARDRAIL_ANNOTATION, check_source
from trimtab.operator.policy_matching import PolicyMatcher
from trimtab.recommender.cohort import StrategySpec
from trimtab.recommender.workload import strategy_spec_from_policy
from trimtab.sizing.policy_rules import PolicyRules, SafetyDefaults
from trimtab.sizing.strategy import STRATEGIES
from trimtab.timing import Interval
from trimtab.usage.prometheus.namespace_scope import find_scoped_problem

B = TypeVar("B", ResourceBounds, ContainerBounds)
DAY = 86400.0

MAX_CHECK_SECONDS, CHECK_PERIOD = 0.5, 10.0
"""The CPU seconds of each period in which new guardrails of one namespace are checked.

Each check delays everybody by up to 25 ms, and a tenant may change its policies all the time.
"""
_WAITS = (
    f"metadata.annotations[{GUARDRAIL_ANNOTATION}]: the namespace has many new guardrails; this one is checked in one of "
    "the next reconciliations"
)

PolicyKey = tuple[str, str]
"""The namespace and name of a policy."""

DEFAULT_POLICY: PolicyKey = ("", "default")
"""The key of the default policy of the operator's configuration, which has no status."""

AdaptSpec = Callable[[OptimizationPolicySpec], OptimizationPolicySpec]
"""Changes the spec of a policy before it is checked and applied."""

_PolicyVersion = tuple[str, int, Labels]
"""The uid, generation and annotations of a policy. Its records also change with every write of its status."""


class PolicyGuardrail(Guardrail):
    """The guardrail in the annotation of a policy."""

    namespace_label: str
    """The label by which its query is restricted to the workload's namespace; empty if it may read all series."""


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """A policy as it applies to its workloads, with the organisation's limits and its strategy."""

    policy: Policy | None
    """The policy; None for the default policy of the operator's configuration."""
    spec: OptimizationPolicySpec
    rules: PolicyRules
    strategy_spec: StrategySpec
    reconciliation_interval: float
    """Seconds between two reconciles of a workload."""
    problem: str = ""
    """The reason why the policy cannot be used; empty if it can."""
    is_certain: bool = True
    """False while another policy may take precedence or the selector cannot be evaluated, because of unread objects."""

    @property
    def key(self) -> PolicyKey:
        return self.policy.key if self.policy else DEFAULT_POLICY

    @property
    def name(self) -> str:
        return str(self.policy) if self.policy else "default"

    @property
    def explanation_basis(self) -> tuple[str, int, StrategySpec]:
        """The uid, generation and strategy: a recommendation under others needs another explanation."""
        uid, generation = (self.policy.uid, self.policy.generation) if self.policy else ("", 0)
        return uid, generation, self.strategy_spec

    def rules_for(self, *, can_resize_in_place: bool) -> PolicyRules:
        """Return the rules in a cluster with or without in-place resize."""
        # Without it every change replaces pods, so the guards must treat small changes as not worth a restart.
        return self.rules if can_resize_in_place else msgspec.structs.replace(self.rules, restarts_pods=True)

    def selects(self, workload: Workload, *, namespace: Labels) -> bool:
        """Return True if the selector of the policy matches a workload in a namespace with these labels."""
        return self.spec.selector.matches(
            kind=workload.key.kind,
            namespace=workload.namespace,
            labels=dict(workload.labels),
            namespace_labels=dict(namespace),
        )

    def update_strategy(self, config: OperatorConfig, *, now: float) -> UpdateStrategy:
        """Return how changes are made now: outside the operator's own windows, they replace the policy's windows."""
        windows, strategy = config.maintenance_windows, self.spec.update_strategy
        # Inside the operator's windows the policy's own ones still restrict the changes; outside, nothing
        # may start.
        if next_opening(windows, now=int(now)) == int(now):
            return strategy
        return strategy.model_copy(update={"windows": windows})

    def guardrails(self, config: OperatorConfig) -> tuple[Guardrail, ...]:
        """Return the guardrails to watch during a change: those of the configuration, and the policy's own."""
        own = _guardrail_query(self.policy)
        if self.policy is None or not own:
            return config.guardrails
        is_trusted = self.policy.namespace in config.query_rules.trusted_namespaces
        label = "" if is_trusted else config.query_rules.label
        return *config.guardrails, PolicyGuardrail(name="policy", query=own, namespace_label=label)

    def blocked_reason(
        self,
        workload: Workload,
        config: OperatorConfig,
        *,
        vpa: str = "",
        intent: str = "",
        hold: Hold | None = None,
    ) -> str:
        """Return the reason why this workload must not be changed, whatever is recommended; empty if it may.

        A hold without sizes stops only new changes (`DesiredChange.hold_reason`): new pods still get the size in effect.
        """
        # First, because a dry run or an emergency stop changes nothing, whoever chose a size.
        if reason := config.freeze_reason:
            return reason
        if not self._may_resize(hold):
            return str(hold) if hold else f"the policy's mode is {self.spec.mode}"
        if reason := _protected_reason(workload, config, vpa):
            return reason
        # A size that a person chose takes precedence over every controller.
        if intent and not (hold and hold.sizes):
            return f"Intent {intent} controls the size of this workload; set active: false in it to use the policy"
        return ""

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
        """Return how new pods get the size of their workload, by this policy or by an Intent."""
        strategy = self.spec.update_strategy
        by_policy = self._may_resize(hold) and strategy.allow_in_place_resize
        # Not the whole of `blocked_reason`: while an Intent controls the size, new pods still get the size
        # in effect.
        protected = config.freeze_reason or _protected_reason(workload, config, vpa)
        named = {each for pod in pods for each in pod.containers}
        return PodSync(
            enabled=can_resize_in_place and bool(by_policy or intent) and not protected,
            startup_boost=strategy.startup_boost,
            # An Intent gives the whole pod its size, whatever the policy would size.
            excluded=frozenset()
            if intent
            else self.rules.excluded_containers(named.union(workload.containers)),
            limits=size_limits(workload, config, intent=intent),
        )

    def _may_resize(self, hold: Hold | None) -> bool:
        """Return True if the policy's mode, or a size that a person chose, permits to change pods."""
        return self.spec.mode is PolicyMode.AUTO or bool(hold and hold.sizes)


def resolve_hold(workload: Workload, config: OperatorConfig) -> Hold | None:
    """Return the hold on a workload as far as the organisation's limits permit it; None if there is none."""
    hold = read_hold(workload.annotations)
    if hold is None or not hold.sizes:
        return hold
    # Where no policy may change anything, nobody may do so by an annotation. The request to stop still counts.
    sizes = (
        {}
        if PolicyMode.AUTO in config.limits.forbidden_modes
        else config.limits.size_limits.clamp(hold.sizes, template=container_sizes(workload.containers))
    )
    return msgspec.structs.replace(hold, sizes=sizes)


def size_limits(workload: Workload, config: OperatorConfig, *, intent: str = "") -> SizeLimits:
    """Return the limits for the sizes in a workload's annotations; an Intent has limits of its own."""
    return config.intents.size_limits(workload.namespace) if intent else config.limits.size_limits


def build_effective_policy(
    policy: Policy, config: OperatorConfig, *, budget: NamespaceBudget | None = None
) -> EffectivePolicy:
    """Build the effective policy of a policy under a configuration; raises `BudgetExhausted` if its namespace has no
    time left for a new guardrail.
    """
    return _build(policy, policy.spec, config, budget)


def build_default_policy(
    config: OperatorConfig, *, adapt: AdaptSpec = lambda spec: spec
) -> EffectivePolicy | None:
    """Build the default policy of a configuration; None if it has none."""
    return _build(None, adapt(config.default_policy), config) if config.default_policy else None


def _build(
    policy: Policy | None,
    spec: OptimizationPolicySpec,
    config: OperatorConfig,
    budget: NamespaceBudget | None = None,
) -> EffectivePolicy:
    limits = config.limits
    bounded = _apply_org_limits(spec, limits)
    problems = limits.find_problems(spec)
    source_problems = [*check_source(spec, config, namespace=policy.namespace if policy else None)]
    problems += source_problems
    # A source that the policy may not use must not be opened: the default one stands for it.
    source = "" if source_problems else config.resolve_source(spec)
    strategy_spec = strategy_spec_from_policy(spec)._replace(source=source or "")
    try:
        STRATEGIES.parse_settings(strategy_spec.strategy, strategy_spec.decode_settings())
        # The administrator, who writes the default policy, may name files of the operator's pod.
        path = STRATEGIES.find_path_problem(spec.strategy_name, spec.strategy.settings) if policy else ""
        problems += [f"spec.strategy.settings.{path}"] if path else []
    except TrimtabError as error:
        problems.append(f"spec.strategy: {error}")
    scope = config.query_rules.scope(author=policy.namespace, reader=policy.namespace) if policy else None
    query = _guardrail_query(policy)
    if query and (wrong := find_scoped_problem(query, scope, budget=budget)):
        problems.append(f"metadata.annotations[{GUARDRAIL_ANNOTATION}]: {wrong}")
    return EffectivePolicy(
        policy=policy,
        spec=bounded,
        rules=PolicyRules.from_spec(
            bounded, SafetyDefaults(oom_history=max(config.learning.history.seconds, DAY))
        ),
        strategy_spec=strategy_spec,
        reconciliation_interval=(spec.reconciliation_interval or config.reconciliation_interval).seconds,
        # Of a policy that could not be read, the spec is a placeholder: its other problems would mislead.
        problem="; ".join([policy.problem] if policy and policy.problem else problems),
    )


def _protected_reason(workload: Workload, config: OperatorConfig, vpa: str) -> str:
    """Return the reason why pods of a workload must not be changed by policies or Intents; empty if they may."""
    if workload.namespace in config.limits.excluded_namespaces:
        return f"namespace {workload.namespace} is excluded by limits.excludedNamespaces of the operator"
    if vpa:
        return f"VerticalPodAutoscaler {vpa} changes its pods; set its updateMode to Off to use the policy"
    return ""


def _drop_guardrail(policy: Policy) -> Policy:
    annotations = tuple(each for each in policy.annotations if each[0] != GUARDRAIL_ANNOTATION)
    return msgspec.structs.replace(policy, annotations=annotations)


def _guardrail_query(policy: Policy | None) -> str:
    return dict(policy.annotations).get(GUARDRAIL_ANNOTATION, "") if policy else ""


def _apply_org_limits(spec: OptimizationPolicySpec, limits: OrganisationLimits) -> OptimizationPolicySpec:
    """Return the spec with the organisation's maxima where the policy sets none."""

    def bound(stated: Bounds | None, most: Quantity | None) -> Bounds | None:
        # A maximum that the policy sets stays, even above the organisation's: `find_problems` reports that
        # to its owner.
        is_open = stated is not None and stated.max is None and most is not None
        return stated.model_copy(update={"max": most}) if stated and is_open else stated

    def both(stated: B) -> B:
        held = {"cpu": bound(stated.cpu, limits.max_cpu), "memory": bound(stated.memory, limits.max_memory)}
        return stated.model_copy(update=held)

    if not limits.default_maxima(spec):
        return spec  # avoids a copy for each of thousands of policies
    containers = [
        each.model_copy(update={"resource_bounds": both(each.resource_bounds)}) for each in spec.containers
    ]
    return spec.model_copy(
        update={"resource_bounds": both(spec.resource_bounds), "containers": tuple(containers)}
    )


class PolicyResolver:
    """Resolves policies on every call, because policies and configuration may change at any time.

    An effective policy is built once for each version of its policy and kept while the policy and the configuration exist.
    """

    def __init__(
        self,
        cluster_state: ClusterState,
        config: Callable[[], OperatorConfig],
        *,
        clock: Callable[[], float] = time.monotonic,
        adapt: AdaptSpec = lambda spec: spec,
    ) -> None:
        """Create a resolver; `adapt` changes the spec of each policy before it is checked and applied."""
        self._adapt = adapt
        self._cluster_state = cluster_state
        self._config = config
        self._built_for: OperatorConfig | None = None
        self._matcher: PolicyMatcher | None = None
        self._default: EffectivePolicy | None = None
        self._effective: dict[_PolicyVersion, EffectivePolicy] = {}
        self._check_budget = NamespaceBudget(MAX_CHECK_SECONDS)
        self._renewal = Interval(CHECK_PERIOD)
        self._clock = clock

    @property
    def config(self) -> OperatorConfig:
        return self._config()

    def resolve(self, workload: Workload) -> EffectivePolicy | None:
        """Return the effective policy of a workload: its policy with the highest weight, or the default policy.

        Return None if the workload is not sized.
        """
        found = self._find_policy(workload)
        if found is None:
            return None
        # A policy that cannot be read, such as one with mode Disabled, may take precedence over this one.
        if why := self._cluster_state.unsynced_reason(OPTIMIZATION_POLICIES, workload.namespace):
            return replace(
                found,
                problem=f"OptimizationPolicies that may take precedence cannot be read: {why}",
                is_certain=False,
            )
        reads_labels = self._cluster_state.policy_matcher.reads_namespace_labels
        if (reads_labels or found.spec.selector.namespace_selector) and (
            why := self._cluster_state.unsynced_reason(NAMESPACES, workload.namespace)
        ):
            return replace(
                found,
                problem=f"a namespaceSelector decides, and the namespace cannot be read: {why}",
                is_certain=False,
            )
        return found

    def _find_policy(self, workload: Workload) -> EffectivePolicy | None:
        """Return the effective policy by the policies that are known."""
        if matching := self._cluster_state.policy_matcher.match(workload):
            return self.resolve_policy(matching[0])
        namespace = self._cluster_state.namespaces.get(workload.namespace)
        default = self._default_policy()
        if default is None or not default.selects(workload, namespace=namespace.labels if namespace else ()):
            return None
        return default

    def resolve_policy(self, policy: Policy) -> EffectivePolicy:
        """Return the effective policy of a policy."""
        self._drop_outdated()
        version = policy.uid, policy.generation, policy.annotations
        found = self._effective.get(version)
        if found is None:
            if self._renewal.due(now := self._clock()):
                self._check_budget.renew()
                self._renewal.restart(now)
            try:
                found = self._build(policy, self._check_budget)
            except BudgetExhausted:
                return replace(
                    self._build(_drop_guardrail(policy)),
                    policy=policy,
                    problem=_WAITS,
                )
            self._effective[version] = found
        return found

    def resolve_strategy(self, policy: EffectivePolicy | None, *, is_required: bool) -> StrategySpec | None:
        """Return the strategy spec for a workload, from its policy or because a VPA asks for one; None if neither does."""
        # A policy with a problem learns nothing: its strategy or source may be what is wrong. One that waits for the check of
        # its guardrail changes nothing, and must not forget what it has learned meanwhile.
        if policy and policy.problem in {"", _WAITS}:
            return policy.strategy_spec
        if not is_required:
            return None
        default = self._default_policy()
        return default.strategy_spec if default else strategy_spec_from_policy(OptimizationPolicySpec())

    def pod_sync(
        self,
        workload: Workload,
        policy: EffectivePolicy | None,
        pods: Iterable[Pod],
        *,
        intent: str = "",
        can_resize_in_place: bool = True,
    ) -> PodSync:
        """Return how new pods of a workload get its size: by its policy, or by an Intent."""
        vpa, config = self._cluster_state.active_vpa(workload.key), self.config
        if policy is None:
            protected = config.freeze_reason or _protected_reason(workload, config, vpa)
            return PodSync(
                enabled=can_resize_in_place and bool(intent) and not protected,
                limits=size_limits(workload, config, intent=intent),
            )
        return policy.pod_sync(
            workload,
            pods,
            config,
            vpa=vpa,
            intent=intent,
            hold=resolve_hold(workload, config),
            can_resize_in_place=can_resize_in_place,
        )

    def _build(self, policy: Policy, budget: NamespaceBudget | None = None) -> EffectivePolicy:
        return _build(policy, self._adapt(policy.spec), self.config, budget)

    def _default_policy(self) -> EffectivePolicy | None:
        self._drop_outdated()
        return self._default

    def _drop_outdated(self) -> None:
        """Drop what was built for another configuration, and policies that have changed or been deleted since."""
        config, matcher = self.config, self._cluster_state.policy_matcher
        # Compared by identity: a reload makes a new configuration, and a comparison of all fields would
        # cost each call.
        if self._built_for is not config:
            self._built_for = config
            self._default = build_default_policy(config, adapt=self._adapt)
            self._effective = {}
        if self._matcher is not matcher:  # a policy or a namespace has changed
            self._matcher = matcher
            current = {(each.uid, each.generation, each.annotations) for each in self._cluster_state.policies}
            self._effective = {
                version: found for version, found in self._effective.items() if version in current
            }
