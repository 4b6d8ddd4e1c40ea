"""What is wrong with a policy that its CRD cannot see, and what its author should know.

A CRD knows one object and no plugins: it cannot say that a strategy is not installed, that a query is no PromQL, that
an organisation forbids a mode, or that another policy wants the same workloads. Pure: the policies that are there and
the configuration are passed in. Whatever is refused names the field and the fix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from trimtab.api import OptimizationPolicy, problems_of
from trimtab.api.optimizationpolicy import Mode, OptimizationPolicySpec
from trimtab.errors import TrimtabError
from trimtab.kube.kinds.policies import Policy
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.config.promql import problem_of
from trimtab.operator.policy.overlap import overlap
from trimtab.sizing.strategy import STRATEGIES

GUARDRAIL: Final = "trimtab.io/guardrail"
"""The annotation by which a policy adds a guardrail of its own: PromQL that gives 0 while it holds, and more when not."""

_NAMED_AT_MOST = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong (one line a field), and what is only worth a warning."""

    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def judge(policy: OptimizationPolicy, *, others: Iterable[Policy], config: OperatorConfig) -> Verdict:
    """Whether a policy may come in beside these others."""
    problems = [
        *_strategy(policy.spec),
        *_provider(policy.spec, config),
        *_guardrail(policy),
        *config.limits.problems(policy.spec),
    ]
    conflicts = _conflicts(policy, others, home=config.namespace)
    warnings = [*conflicts, *_untouched(policy.spec, config), *_dry_run(policy.spec, config)]
    return Verdict(tuple(problems), tuple(warnings))


def _strategy(spec: OptimizationPolicySpec) -> Iterator[str]:
    chosen = spec.strategy
    try:
        STRATEGIES.type_of(chosen.name).settings_type(**chosen.settings)
    except ValidationError as error:
        yield from problems_of(error, prefix="spec.strategy.settings")
    except TrimtabError as error:
        yield f"spec.strategy.name: {error}"


def _provider(spec: OptimizationPolicySpec, config: OperatorConfig) -> Iterator[str]:
    if config.source_of(spec) is None:
        yield unknown_source(spec, config)


def unknown_source(spec: OptimizationPolicySpec, config: OperatorConfig) -> str:
    """That the provider of a policy is none of the operator's sources, and which there are."""
    known = ", ".join(config.source_names)
    return (
        f"spec.metricsConfig.provider: the operator has no usage source {spec.metrics_config.provider!r}; "
        f"name one of: {known} (otherMetricsSources of the operator)"
    )


def _guardrail(policy: OptimizationPolicy) -> Iterator[str]:
    query = policy.metadata.annotations.get(GUARDRAIL)
    if query is not None and (wrong := problem_of(query)) is not None:
        yield f"metadata.annotations[{GUARDRAIL}]: {wrong}"


def _conflicts(policy: OptimizationPolicy, others: Iterable[Policy], *, home: str) -> Iterator[str]:
    """A tie is broken by name, which works but is seldom what was meant. Only at home a policy selects elsewhere too."""
    if policy.spec.mode is Mode.DISABLED:
        return
    own = (policy.metadata.namespace, policy.metadata.name)
    rivals = sorted(
        other.key
        for other in others
        if other.key != own
        and not other.problem
        and other.spec.mode is not Mode.DISABLED
        and other.spec.weight == policy.spec.weight
        and overlap(policy.spec.selector, other.spec.selector, within={own[0], other.namespace} - {home})
    )
    if rivals:
        named = ", ".join("/".join(rival) for rival in rivals[:_NAMED_AT_MOST])
        more = f" and {len(rivals) - _NAMED_AT_MOST} more" if len(rivals) > _NAMED_AT_MOST else ""
        yield (
            f"spec.weight: {policy.spec.weight} is the weight of {named}{more} too, which can select the same "
            "workloads; the first by name wins: give one another weight"
        )


def _untouched(spec: OptimizationPolicySpec, config: OperatorConfig) -> Iterator[str]:
    for place, namespace in enumerate(spec.selector.namespaces.allow):
        if namespace in config.limits.untouched_namespaces:
            yield (
                f"spec.selector.namespaces.allow[{place}]: nothing is ever changed in {namespace} "
                "(limits.untouchedNamespaces of the operator)"
            )


def _dry_run(spec: OptimizationPolicySpec, config: OperatorConfig) -> Iterator[str]:
    if config.dry_run and spec.mode is Mode.AUTO:
        yield "spec.mode: the operator is in a dry run: Auto recommends only until dryRun is false"
