"""Validation of policies: errors, warnings and their texts."""

from typing import Any

import pytest

from harness.usage_settings import refuse_tokens
from trimtab.api import OptimizationPolicy
from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.kube.kinds.policies import Policy
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.policy.validation import GUARDRAIL_ANNOTATION, PolicyReview, review_policy


def policy(spec: dict[str, Any] | None = None, *, guardrail: str | None = None) -> OptimizationPolicy:
    annotations = {GUARDRAIL_ANNOTATION: guardrail} if guardrail else {}
    metadata = {"name": "web", "namespace": "shop", "annotations": annotations}
    return OptimizationPolicy.read({"kind": "OptimizationPolicy", "metadata": metadata, "spec": spec or {}})


def existing_policy(
    name: str, spec: dict[str, Any] | None = None, *, namespace: str = "shop", problem: str = ""
) -> Policy:
    read = OptimizationPolicySpec.model_validate(spec or {})
    return Policy(namespace, name, uid=name, version=1, generation=1, created=0, spec=read, problem=problem)


def config(**settings: Any) -> OperatorConfig:
    return OperatorConfig.model_validate(settings)


def verdict(
    spec: dict[str, Any], *others: Policy, limits: dict[str, Any] | None = None, dry_run: bool = False
) -> PolicyReview:
    return review_policy(policy(spec), others=others, config=config(limits=limits or {}, dryRun=dry_run))


def test_validation_accepts_a_plain_policy_without_warnings() -> None:
    assert verdict({"mode": "Auto"}) == PolicyReview()


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        (
            {"strategy": {"name": "crystal-ball"}},
            "spec.strategy.name: strategy 'crystal-ball' is not known; there are:",
        ),
        (
            {"strategy": {"name": "percentile", "settings": {"quantile": 2}}},
            "spec.strategy.settings.quantile: must be at most 1",
        ),
        (
            {"strategy": {"name": "percentile", "settings": {"quantil": 0.5}}},
            "spec.strategy.settings.quantil: unknown field; check its spelling; there are: ",
        ),
        (
            {"metricsConfig": {"provider": "abacus"}},
            "spec.metricsConfig.provider: the operator has no usage source 'abacus'; name one of: prometheus",
        ),
        (
            {"updateStrategy": {"windows": [{"timeZone": "UTC"}, {"timeZone": "Europe/Berln"}]}},
            'spec.updateStrategy.windows[1].timeZone: "Europe/Berln" is not a known time zone, so the window would',
        ),
    ],
)
def test_validation_rejects_what_is_not_installed_or_does_not_fit(spec: dict[str, Any], line: str) -> None:
    (problem,) = verdict(spec).problems
    assert problem.startswith(line)


def test_validation_suggests_the_nearest_time_zone() -> None:
    windows = [{"timeZone": zone} for zone in ("europe/berln", "Mars/Olympus")]
    near, far = verdict({"updateStrategy": {"windows": windows}}).problems
    assert near.endswith("would never open; did you mean Europe/Berlin?")
    assert far.endswith("would never open; write it like UTC or Europe/Berlin")


def test_validation_names_the_configured_sources() -> None:
    given = config(additionalMetricsSources=[{"name": "live", "provider": "metrics-server"}])
    (problem,) = review_policy(
        policy({"metricsConfig": {"provider": "kubelet"}}), others=(), config=given
    ).problems
    assert "no usage source 'kubelet'; name one of: prometheus, live" in problem
    assert (
        review_policy(policy({"metricsConfig": {"provider": "live"}}), others=(), config=given)
        == PolicyReview()
    )


def test_validation_permits_a_secret_in_the_namespace_of_the_operator_only() -> None:
    spec = {"metricsConfig": {"secret": "team-a"}}
    (problem,) = verdict(spec).problems
    assert problem == (
        "spec.metricsConfig.secret: only a policy in namespace trimtab-system may name a Secret; create the policy there, "
        "or remove 'team-a'"
    )
    assert review_policy(policy(spec), others=(), config=config(namespace="shop")) == PolicyReview()
    live = config(namespace="shop", metricsSource={"provider": "metrics-server"})
    (problem,) = review_policy(policy(spec), others=(), config=live).problems
    assert "the source metrics-server takes no credentials" in problem


def test_validation_rejects_a_secret_that_the_settings_of_the_source_forbid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refuse_tokens(monkeypatch)
    given = policy({"metricsConfig": {"secret": "team-a"}})
    (problem,) = review_policy(given, others=(), config=config(namespace="shop")).problems
    assert problem == (
        "spec.metricsConfig.secret: the source prometheus cannot use Secret 'team-a': a token does not go with the other "
        "settings; correct the Secret's keys, or name another one"
    )


@pytest.mark.parametrize(
    ("limits", "spec", "line"),
    [
        (
            {"forbiddenModes": ["Auto"]},
            {"mode": "Auto"},
            "spec.mode: Auto is forbidden by your organisation; use Rec",
        ),
        (
            {"forbiddenStrategies": ["krr"]},
            {"strategy": {"name": "krr"}},
            "spec.strategy.name: krr is forbidden",
        ),
        (
            {"maxSafetyFactor": 1.5},
            {"metricsConfig": {"safetyFactor": 2}},
            "spec.metricsConfig.safetyFactor: 2 is above the limit of your organisation; use at most 1.5",
        ),
        (
            {"maxSafetyFactor": 1.1},
            {"strategy": {"name": "percentile"}},
            "spec.metricsConfig.safetyFactor: 1.2 is above the limit of your organisation; use at most 1.1",
        ),
        (
            {"forbiddenStrategies": ["percentile"]},
            {"metricsConfig": {"percentile": "P95"}},
            "spec.strategy.name: percentile is forbidden",
        ),
        (
            {"maxCpu": "4"},
            {"resourceBounds": {"cpu": {"max": "8"}}},
            "spec.resourceBounds.cpu.max: 8 is above the limit of your organisation; use at most 4",
        ),
        (
            {"maxMemory": "1Gi"},
            {"resourceBounds": {"memory": {"min": "2Gi"}}},
            "spec.resourceBounds.memory.min: 2Gi is above the limit of your organisation; use at most 1Gi",
        ),
    ],
)
def test_validation_rejects_what_exceeds_the_organisation(
    limits: dict[str, Any], spec: dict[str, Any], line: str
) -> None:
    (problem,) = verdict(spec, limits=limits).problems
    assert problem.startswith(line)
    assert verdict(spec).problems == ()


def test_validation_defaults_a_maximum_to_that_of_the_organisation() -> None:
    limits = config(limits={"maxCpu": "4", "maxMemory": "8Gi"}).limits
    assert {path: str(most) for path, most in limits.default_maxima(policy().spec).items()} == {
        "resourceBounds/cpu/max": "4",
        "resourceBounds/memory/max": "8Gi",
    }
    stated = policy({"resourceBounds": {"cpu": {"max": "1"}, "memory": {"max": "1Gi"}}})
    assert limits.default_maxima(stated.spec) == {}


def test_validation_rejects_a_guardrail_that_is_no_promql() -> None:
    bad = review_policy(policy(guardrail="sum(rate(errors))"), others=(), config=config())
    (problem,) = bad.problems
    assert problem.startswith(
        f"metadata.annotations[{GUARDRAIL_ANNOTATION}]: is not valid PromQL: expected type matrix in call to"
    )
    good = 'sum(rate(errors{namespace="$namespace", app="$workload"}[5m]))'
    assert review_policy(policy(guardrail=good), others=(), config=config()).problems == ()


def test_validation_rejects_a_guardrail_that_no_source_can_evaluate() -> None:
    guarded = policy({"mode": "Auto"}, guardrail="up > bool 0")
    alone, both = (
        config(metricsSource={"provider": "metrics-server"}, additionalMetricsSources=others)
        for others in ([], [{"provider": "prometheus"}])
    )
    (problem,) = review_policy(guarded, others=(), config=alone).problems
    assert problem.startswith(
        f"metadata.annotations[{GUARDRAIL_ANNOTATION}]: no usage source of the operator evaluates PromQL "
        "(there is only: metrics-server); add a Prometheus"
    )
    assert review_policy(guarded, others=(), config=both) == PolicyReview()


def test_validation_warns_of_guardrails_of_the_operator_that_no_source_can_evaluate() -> None:
    guardrails = [{"name": "error-rate", "query": "up", "max": 1}]
    alone = config(metricsSource={"provider": "metrics-server"}, guardrails=guardrails)
    (warning,) = review_policy(policy({"mode": "Auto"}), others=(), config=alone).warnings
    assert warning.startswith("spec.mode: no change will start: guardrails of the operator (error-rate): ")
    assert review_policy(policy(), others=(), config=alone) == PolicyReview()
    with_prometheus = config(guardrails=guardrails)
    assert review_policy(policy({"mode": "Auto"}), others=(), config=with_prometheus) == PolicyReview()


def test_validation_warns_of_an_equal_weight_of_overlapping_policies() -> None:
    home = OperatorConfig().namespace
    found = verdict(
        {}, existing_policy("api"), existing_policy("web"), existing_policy("zebra", namespace=home)
    )
    assert found.problems == ()
    (warning,) = found.warnings
    assert warning == (
        f"spec.weight: 100 is the weight of shop/api, {home}/zebra too, which can select the same workloads; "
        "one in trimtab-system wins, then the first by name: change one of the weights"
    )


def test_validation_counts_many_overlapping_policies() -> None:
    (warning,) = verdict({}, *(existing_policy(f"api-{n}") for n in range(5))).warnings
    assert "shop/api-0, shop/api-1, shop/api-2 and 2 more too" in warning


@pytest.mark.parametrize(
    "other",
    [
        existing_policy("web"),
        existing_policy("heavier", {"weight": 200}),
        existing_policy("elsewhere", {"selector": {"namespaces": {"deny": ["shop"]}}}),
        existing_policy("of-another-team", namespace="zoo"),
        existing_policy(
            "for-another-team", {"selector": {"namespaces": {"allow": ["zoo"]}}}, namespace="trimtab-system"
        ),
        existing_policy("sleeping", {"mode": "Disabled"}),
        existing_policy("broken", problem="spec.weight: must be at most 1000"),
    ],
    ids=str,
)
def test_validation_does_not_warn_without_a_conflict(other: Policy) -> None:
    assert verdict({"selector": {"namespaces": {"allow": ["shop"]}}}, other).warnings == ()


def test_validation_warns_of_namespaces_that_the_policy_cannot_reach() -> None:
    spec = {"selector": {"namespaces": {"allow": ["shop", "data"]}}}
    (warning,) = verdict(spec).warnings
    assert warning == (
        "spec.selector.namespaces.allow: a policy in shop selects workloads of shop only; "
        "create it in trimtab-system to select other namespaces"
    )
    assert verdict({"selector": {"namespaces": {"allow": ["shop"]}}}) == PolicyReview()


def test_validation_warns_of_an_excluded_namespace() -> None:
    (warning,) = verdict({"selector": {"namespaces": {"allow": ["shop", "kube-system"]}}}).warnings
    assert warning.startswith("spec.selector.namespaces.allow[1]: nothing is ever changed in kube-system")


def test_validation_warns_of_auto_mode_in_a_dry_run() -> None:
    (warning,) = verdict({"mode": "Auto"}, dry_run=True).warnings
    assert warning.startswith("spec.mode: the operator is in a dry run")
    assert verdict({"mode": "Recommend"}, dry_run=True).warnings == ()


@pytest.mark.parametrize("name", ["krr", "peak", "autopilot-window", "autopilot-ml", "seasonal"])
def test_review_policy_warns_of_a_baseline_strategy(name: str) -> None:
    (warning,) = verdict({"strategy": {"name": name}}).warnings
    assert warning.startswith(f"spec.strategy.name: {name} is for comparison")


@pytest.mark.parametrize("name", ["trimtab", "vpa"])
@pytest.mark.parametrize(
    ("field", "value"), [("percentile", "P95"), ("safetyFactor", 1.5), ("rollingWindow", "48h")]
)
def test_review_policy_warns_of_a_field_that_the_strategy_ignores(
    name: str, field: str, value: object
) -> None:
    metrics = {field: value}
    (warning,) = verdict({"strategy": {"name": name}, "metricsConfig": metrics}).warnings
    assert warning.startswith(f"spec.metricsConfig.{field}: the strategy {name} ignores it; ")
    assert verdict({"metricsConfig": metrics}).warnings == ()
    assert verdict({"strategy": {"name": "percentile"}, "metricsConfig": metrics}).warnings == ()


def test_review_policy_warns_of_a_goal_that_the_strategy_ignores() -> None:
    spec = {"goal": "Savings", "resourceGoals": {"memory": "Reliability"}, "strategy": {"name": "vpa"}}
    found = verdict(spec).warnings
    assert [each.partition(":")[0] for each in found] == ["spec.goal", "spec.resourceGoals.memory"]
    assert all(each.endswith("set spec.strategy.name to trimtab") for each in found)


def test_review_policy_does_not_warn_of_the_defaults_stored_with_a_policy_of_the_version_before() -> None:
    stored = {"percentile": "P90", "safetyFactor": 1.2, "rollingWindow": "24h0m0s"}
    assert verdict({"strategy": {"name": "trimtab"}, "metricsConfig": stored}).warnings == ()


@pytest.mark.parametrize("name", ["trimtab", "vpa", "percentile"])
def test_review_policy_accepts_a_product_strategy(name: str) -> None:
    assert verdict({"strategy": {"name": name}}).warnings == ()
