"""Validate what a policy's CRD cannot, and warn its author.

A CRD sees one object and no plugins: it cannot know that a strategy is not installed, that a query is not valid PromQL,
that an organisation forbids a mode, or that another policy selects the same workloads. Pure: the existing policies and the
configuration are arguments. Every problem names the field and the fix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from trimtab.actuation.decide.maintenance_windows import describe_unknown_time_zone
from trimtab.api import OptimizationPolicy
from trimtab.api.meta import LabelSelector, LabelSelectorOperator, LabelSelectorRequirement
from trimtab.api.optimizationpolicy import (
    DEFAULT_STRATEGY,
    PERCENTILE_STRATEGY,
    OptimizationPolicySpec,
    PolicyMode,
    PolicySelector,
)
from trimtab.errors import TrimtabError
from trimtab.kube.kinds.policies import Policy
from trimtab.operator.config.model import SECRET_SEPARATOR, OperatorConfig
from trimtab.sizing.strategy import STRATEGIES
from trimtab.usage.prometheus.namespace_scope import find_scoped_problem

GUARDRAIL_ANNOTATION: Final = "trimtab.io/guardrail"
"""The annotation by which a policy adds its own guardrail: PromQL that returns 0 while it is satisfied."""

_MAX_NAMED = 3
_NO_PROMQL = (
    "no usage source of the operator evaluates PromQL (there is only: {}); "
    "add a Prometheus to additionalMetricsSources, or remove the guardrail"
)


@dataclass(frozen=True, slots=True)
class PolicyReview:
    """The problems of a policy, one line per field, and the warnings for its author."""

    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def review_policy(
    policy: OptimizationPolicy, *, others: Iterable[Policy], config: OperatorConfig
) -> PolicyReview:
    """Review a policy beside these others."""
    problems = [
        *_check_strategy(policy.spec),
        *check_source(policy.spec, config, namespace=policy.metadata.namespace or ""),
        *_check_guardrail(policy, config),
        *_check_time_zones(policy.spec),
        *config.limits.find_problems(policy.spec),
        *_check_weight(policy, config),
    ]
    conflicts = _warn_of_conflicts(policy, others, operator_namespace=config.namespace)
    warnings = [
        *conflicts,
        *_warn_of_baseline(policy.spec),
        *describe_ignored_fields(policy.spec),
        *_warn_of_unreachable_namespaces(policy, config),
        *_warn_of_excluded_namespaces(policy.spec, config),
        *_warn_of_dry_run(policy.spec, config),
        *_warn_of_blind_guardrails(policy.spec, config),
    ]
    return PolicyReview(tuple(problems), tuple(warnings))


def _check_strategy(spec: OptimizationPolicySpec) -> Iterator[str]:
    name, settings = spec.strategy_name, spec.strategy.settings
    try:
        STRATEGIES.load_type(name).settings_type(**settings)
        if wrong := STRATEGIES.find_path_problem(name, settings):
            yield f"spec.strategy.settings.{wrong}"
    except ValidationError as error:
        yield from STRATEGIES.describe_setting_problems(
            name, settings, error, prefix="spec.strategy.settings"
        )
    except TrimtabError as error:
        yield f"spec.strategy.name: {error}"


def _warn_of_baseline(spec: OptimizationPolicySpec) -> Iterator[str]:
    """Warn of a strategy that is there to compare others with: nobody tunes it for workloads that people rely on."""
    try:
        is_baseline = STRATEGIES.load_type(spec.strategy_name).traits.is_baseline
    except TrimtabError:
        return  # The strategy is not installed: that is a problem and not a warning.
    if is_baseline:
        yield (
            f"spec.strategy.name: {spec.strategy_name} is for comparison in scans and back-tests; "
            "to size workloads choose trimtab, vpa or percentile"
        )


def describe_ignored_fields(spec: OptimizationPolicySpec) -> Iterator[str]:
    """Describe each field that the policy sets and its strategy ignores, with the fix."""
    for field in spec.ignored_fields:
        user = PERCENTILE_STRATEGY if field.startswith("spec.metricsConfig") else DEFAULT_STRATEGY
        yield (
            f"{field}: the strategy {spec.strategy_name} ignores it; remove it, or set spec.strategy.name to {user}"
        )


def check_source(
    spec: OptimizationPolicySpec, config: OperatorConfig, *, namespace: str | None
) -> Iterator[str]:
    """List the problems of a policy's source and of the Secret for it; the default policy has no namespace."""
    if (name := config.resolve_source(spec)) is None:
        known = ", ".join(config.source_names)
        yield (
            f"spec.metricsConfig.provider: the operator has no usage source {spec.metrics_config.provider!r}; "
            f"name one of: {known} (additionalMetricsSources of the operator)"
        )
    elif (secret := spec.metrics_config.secret) and namespace not in {None, config.namespace}:
        yield (
            f"spec.metricsConfig.secret: only a policy in namespace {config.namespace} may name a Secret; "
            f"create the policy there, or remove {secret!r}"
        )
    elif secret:
        source, provider = config.find_source(name), name.partition(SECRET_SEPARATOR)[0]
        if not source.takes_credentials:
            yield f"spec.metricsConfig.secret: the source {provider} takes no credentials; remove {secret!r}"
        elif problem := source.settings_problem:
            yield (
                f"spec.metricsConfig.secret: the source {provider} cannot use Secret {secret!r}: {problem}; "
                "correct the Secret's keys, or name another one"
            )


def _check_guardrail(policy: OptimizationPolicy, config: OperatorConfig) -> Iterator[str]:
    query, namespace = policy.metadata.annotations.get(GUARDRAIL_ANNOTATION), policy.metadata.namespace or ""
    if query is None:
        return
    field = f"metadata.annotations[{GUARDRAIL_ANNOTATION}]"
    scope = config.query_rules.scope(author=namespace, reader=namespace)
    if (wrong := find_scoped_problem(query, scope)) is not None:
        yield f"{field}: {wrong}"
    # A guardrail that nobody can evaluate stays unknown, and the policy would change nothing without a word.
    elif not config.can_evaluate_promql:
        yield f"{field}: {_NO_PROMQL.format(', '.join(config.source_names))}"


def _check_time_zones(spec: OptimizationPolicySpec) -> Iterator[str]:
    for place, window in enumerate(spec.update_strategy.windows):
        if problem := describe_unknown_time_zone(window.time_zone):
            yield f"spec.updateStrategy.windows[{place}].timeZone: {problem}"


def _check_weight(policy: OptimizationPolicy, config: OperatorConfig) -> Iterator[str]:
    reserved, weight = config.limits.reserved_weight, policy.spec.weight
    if reserved is not None and weight >= reserved and policy.metadata.namespace != config.namespace:
        yield (
            f"spec.weight: {weight} is reserved for policies in namespace {config.namespace} "
            f"(limits.reservedWeight of the operator); use at most {reserved - 1}"
        )


def _warn_of_conflicts(
    policy: OptimizationPolicy, others: Iterable[Policy], *, operator_namespace: str
) -> Iterator[str]:
    """Warn of policies with the same weight that can select the same workloads: the name breaks the tie."""
    if policy.spec.mode is PolicyMode.DISABLED:
        return
    own = (policy.metadata.namespace, policy.metadata.name)
    conflicting = sorted(
        other.key
        for other in others
        if other.key != own
        and not other.problem
        and other.spec.mode is not PolicyMode.DISABLED
        and other.spec.weight == policy.spec.weight
        and can_overlap(
            policy.spec.selector, other.spec.selector, within={own[0], other.namespace} - {operator_namespace}
        )
    )
    if conflicting:
        named = ", ".join("/".join(other) for other in conflicting[:_MAX_NAMED])
        more = f" and {len(conflicting) - _MAX_NAMED} more" if len(conflicting) > _MAX_NAMED else ""
        yield (
            f"spec.weight: {policy.spec.weight} is the weight of {named}{more} too, which can select the same "
            f"workloads; one in {operator_namespace} wins, then the first by name: change one of the weights"
        )


def _warn_of_unreachable_namespaces(policy: OptimizationPolicy, config: OperatorConfig) -> Iterator[str]:
    own, allowed = policy.metadata.namespace, policy.spec.selector.namespaces.allow
    if own != config.namespace and {*allowed} - {own, *config.limits.excluded_namespaces}:
        yield (
            f"spec.selector.namespaces.allow: a policy in {own} selects workloads of {own} only; "
            f"create it in {config.namespace} to select other namespaces"
        )


def _warn_of_excluded_namespaces(spec: OptimizationPolicySpec, config: OperatorConfig) -> Iterator[str]:
    for place, namespace in enumerate(spec.selector.namespaces.allow):
        if namespace in config.limits.excluded_namespaces:
            yield (
                f"spec.selector.namespaces.allow[{place}]: nothing is ever changed in {namespace} "
                "(limits.excludedNamespaces of the operator)"
            )


def _warn_of_dry_run(spec: OptimizationPolicySpec, config: OperatorConfig) -> Iterator[str]:
    if config.dry_run and spec.mode is PolicyMode.AUTO:
        yield "spec.mode: the operator is in a dry run: Auto recommends only until dryRun is false"
    if config.stop_reason and spec.mode is PolicyMode.AUTO:
        yield f"spec.mode: nothing is changed for now: {config.stop_reason}"


def _warn_of_blind_guardrails(spec: OptimizationPolicySpec, config: OperatorConfig) -> Iterator[str]:
    if spec.mode is PolicyMode.AUTO and config.guardrails and not config.can_evaluate_promql:
        named = ", ".join(each.name for each in config.guardrails[:_MAX_NAMED])
        yield (
            f"spec.mode: no change will start: guardrails of the operator ({named}): "
            f"{_NO_PROMQL.format(', '.join(config.source_names))}"
        )


def can_overlap(one: PolicySelector, other: PolicySelector, *, within: Iterable[str] = ()) -> bool:
    """Return True if a workload could exist that both select; `within` are namespaces that one of them cannot leave.

    Existing workloads do not matter: a workload that both select may be created later. The answer is exact, except that a
    namespace's own-name label is treated like any other label.
    """
    return (
        _can_share_name(
            allowed=(one.namespaces.allow, other.namespaces.allow, *((name,) for name in within)),
            refused=(*one.namespaces.deny, *other.namespaces.deny),
        )
        and _can_share_name(
            allowed=(one.workload_types.include, other.workload_types.include),
            refused=(*one.workload_types.exclude, *other.workload_types.exclude),
        )
        and _are_satisfiable((one.namespace_selector, other.namespace_selector))
        and _are_satisfiable((one.workload_selector, other.workload_selector))
    )


def _can_share_name(*, allowed: Sequence[Sequence[str]], refused: Iterable[str]) -> bool:
    """Return True if a name is in all allow lists, where an empty list allows every name, and not refused."""
    stated = [set(names) for names in allowed if names]
    return not stated or bool(set.intersection(*stated) - set(refused))


def _are_satisfiable(selectors: Iterable[LabelSelector | None]) -> bool:
    """Return True if some labels satisfy all of these selectors."""
    demands: dict[str, list[LabelSelectorRequirement]] = {}
    for selector in selectors:
        for demand in _requirements(selector) if selector else ():
            demands.setdefault(demand.key, []).append(demand)
    return all(map(_is_satisfiable, demands.values()))


def _requirements(selector: LabelSelector) -> Iterable[LabelSelectorRequirement]:
    equal = (
        LabelSelectorRequirement.model_construct(key=key, operator=LabelSelectorOperator.IN, values=(value,))
        for key, value in selector.match_labels.items()
    )
    return (*equal, *selector.match_expressions)


def _is_satisfiable(demands: Sequence[LabelSelectorRequirement]) -> bool:
    """Return True if one label can satisfy all of these; one unnamed value represents all values not mentioned."""
    values = {value for demand in demands for value in demand.values}
    key = demands[0].key
    unnamed = "\0"
    candidates: list[dict[str, str]] = [{}, *({key: value} for value in (*values, unnamed))]
    return any(all(demand.matches(labels) for demand in demands) for labels in candidates)
