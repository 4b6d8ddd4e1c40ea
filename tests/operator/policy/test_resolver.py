"""The effective policy of a workload: built from policy and configuration, resolved from the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from harness.builders.records import policy, project_object, workload
from trimtab.actuation.hold import Hold
from trimtab.api.optimizationpolicy import MaintenanceWindow, OptimizationPolicySpec
from trimtab.kube.kinds.metadata import Metadata, metadata_projection
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.policies import Policy, policy_projection
from trimtab.kube.rest.resources import NAMESPACES, OPTIMIZATION_POLICIES
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.model import Guardrail, OperatorConfig
from trimtab.operator.policy.resolver import (
    DEFAULT_POLICY,
    EffectivePolicy,
    PolicyResolver,
    build_default_policy,
    build_effective_policy,
)
from trimtab.operator.policy.validation import GUARDRAIL_ANNOTATION
from trimtab.testing import FakeInformerSet

NOON = 1_800_000_000.0 // 86400 * 86400 + 12 * 3600


def config(**settings: Any) -> OperatorConfig:
    return OperatorConfig.model_validate(settings)


def effective_policy(found: Policy | None = None, **settings: Any) -> EffectivePolicy:
    return build_effective_policy(found or policy(), config(**settings))


def with_guardrail(query: str) -> Policy:
    metadata = {"name": "p", "namespace": "shop", "uid": "p", "annotations": {GUARDRAIL_ANNOTATION: query}}
    return project_object(policy_projection(), {"metadata": metadata, "spec": {}})


@pytest.mark.parametrize(
    ("spec", "settings", "problem"),
    [
        ({"strategy": {"name": "luck"}}, {}, "spec.strategy: strategy 'luck' is not known; there are: "),
        ({"strategy": {"name": "vpa", "settings": {"hope": 1}}}, {}, "spec.strategy: strategy vpa: hope"),
        ({"mode": "Auto"}, {"limits": {"forbiddenModes": ["Auto"]}}, "spec.mode: Auto is forbidden"),
        (
            {"metricsConfig": {"provider": "metrics-server"}},
            {},
            "spec.metricsConfig.provider: the operator has no usage source 'metrics-server'; name one of: prometheus",
        ),
        (
            {"metricsConfig": {"provider": "metrics-server"}},
            {"additionalMetricsSources": [{"provider": "metrics-server"}]},
            "",
        ),
        ({"metricsConfig": {"provider": "prometheus"}}, {}, ""),
        ({}, {}, ""),
    ],
)
def test_resolver_gives_the_reason_of_an_unusable_policy(
    spec: dict[str, Any], settings: dict[str, Any], problem: str
) -> None:
    found = effective_policy(policy(**spec), **settings).problem
    assert problem in found
    assert bool(found) == bool(problem)


def test_resolver_uses_the_source_that_the_policy_names() -> None:
    other = {"additionalMetricsSources": [{"provider": "metrics-server"}]}
    assert (
        effective_policy(policy(metricsConfig={"provider": "metrics-server"}), **other).strategy_spec.source
        == "metrics-server"
    )
    assert (
        effective_policy(policy(metricsConfig={"provider": "prometheus"}), **other).strategy_spec
        == effective_policy(policy()).strategy_spec
    )


def test_resolver_opens_no_source_with_a_secret_for_a_policy_of_another_namespace() -> None:
    given = policy(metricsConfig={"secret": "team-a"})
    assert effective_policy(given).strategy_spec.source == "prometheus:team-a"
    assert effective_policy(given).problem == ""
    refused = effective_policy(policy(namespace="shop", metricsConfig={"secret": "team-a"}))
    assert "only a policy in namespace trimtab-system may name a Secret" in refused.problem
    assert refused.strategy_spec.source == ""


def test_resolver_lets_the_default_policy_name_a_secret() -> None:
    found = build_default_policy(config(defaultPolicy={"metricsConfig": {"secret": "team-a"}}))
    assert found is not None
    assert (found.problem, found.strategy_spec.source) == ("", "prometheus:team-a")


def test_resolver_repeats_the_error_of_an_unreadable_policy() -> None:
    broken = policy(mode="Perhaps")
    assert effective_policy(broken).problem == broken.problem


@pytest.mark.parametrize(
    ("spec", "settings", "reason"),
    [
        ({"mode": "Auto"}, {}, ""),
        ({"mode": "Auto"}, {"dryRun": True}, "dryRun"),
        ({"mode": "Recommend"}, {}, "the policy's mode is Recommend"),
        ({"mode": "Auto"}, {"limits": {"excludedNamespaces": ["shop"]}}, "excludedNamespaces"),
    ],
)
def test_resolver_gives_the_reason_of_each_excluded_workload(
    spec: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    found = effective_policy(policy(**spec), **settings).blocked_reason(workload(), config(**settings))
    assert reason in found
    assert bool(found) == bool(reason)


def test_resolver_excludes_a_workload_with_a_vpa() -> None:
    settings = effective_policy(policy(mode="Auto")).blocked_reason(workload(), config(), vpa="web")
    assert (
        settings == "VerticalPodAutoscaler web changes its pods; set its updateMode to Off to use the policy"
    )


@pytest.mark.parametrize(
    ("mode", "sizes", "reason"),
    [
        ("Auto", {}, ""),
        ("Recommend", {}, "the workload is held by ann (unverified): the sale"),
        ("Recommend", {"web": Resources(100)}, ""),
        ("Auto", {"web": Resources(100)}, ""),
    ],
)
def test_resolver_keeps_or_restores_a_held_workload(
    mode: str, sizes: dict[str, Resources], reason: str
) -> None:
    hold = Hold(who="ann", why="the sale", sizes=sizes)
    assert effective_policy(policy(mode=mode)).blocked_reason(workload(), config(), hold=hold) == reason
    assert "dryRun" in effective_policy(policy(mode=mode)).blocked_reason(
        workload(), config(dryRun=True), hold=hold
    )


def test_resolver_applies_the_maximum_of_the_organisation() -> None:
    bounds = effective_policy(limits={"maxCpu": "2"}).spec.resource_bounds
    assert str(bounds.cpu.max) == "2"
    assert bounds.memory.max is None


def test_resolver_applies_the_maximum_of_the_organisation_to_container_bounds() -> None:
    own = [
        {"name": "app", "resourceBounds": {"cpu": {"min": "1"}}},
        {"name": "big", "resourceBounds": {"cpu": {"max": "3"}}},
    ]
    found = effective_policy(policy(containers=own), limits={"maxCpu": "2"})
    app, big = found.spec.containers
    assert app.resource_bounds.cpu is not None
    assert str(app.resource_bounds.cpu.max) == "2"
    assert app.resource_bounds.memory is None
    assert found.problem == (
        "spec.containers[1].resourceBounds.cpu.max: 3 is above the limit of your organisation; use at most 2"
    )
    assert big.name == "big"


def test_resolver_applies_the_maintenance_windows_of_the_operator() -> None:
    own = {"windows": [{"start": "11:00", "end": "13:00"}]}
    found = policy(updateStrategy=own)
    night = {"maintenanceWindows": [{"start": "22:00", "end": "05:00"}]}
    day = {"maintenanceWindows": [{"start": "09:00", "end": "17:00"}]}
    mine = (MaintenanceWindow(start="11:00", end="13:00"),)
    assert effective_policy(found).update_strategy(config(), now=NOON).windows == mine
    assert effective_policy(found).update_strategy(config(**day), now=NOON).windows == mine
    assert (
        effective_policy(found).update_strategy(config(**night), now=NOON).windows
        == config(**night).maintenance_windows
    )


def test_resolver_adds_the_guardrail_of_a_policy() -> None:
    common = {"guardrails": [{"name": "errors", "query": "errors"}]}
    own = with_guardrail('sum(latency{namespace="$namespace"}) > bool 1')
    names = [each.name for each in effective_policy(own).guardrails(config(**common))]
    assert names == ["errors", "policy"]
    assert effective_policy(policy()).guardrails(config(**common)) == (
        Guardrail(name="errors", query="errors"),
    )
    assert GUARDRAIL_ANNOTATION in effective_policy(with_guardrail("sum(")).problem


def namespace(name: str, **labels: str) -> Metadata:
    metadata = {"name": name, "uid": name, "labels": labels}
    return project_object(metadata_projection(), {"metadata": metadata})


def resolver(informers: FakeInformerSet, **settings: Any) -> PolicyResolver:
    cluster_state = ClusterState(informers, operator_namespace="trimtab-system", enqueue=lambda _: None)
    found = config(**settings)
    return PolicyResolver(cluster_state, lambda: found)


def test_resolver_builds_each_version_of_a_policy_once_and_drops_the_others() -> None:
    informers = FakeInformerSet()
    found = resolver(informers)
    informers.put(OPTIMIZATION_POLICIES, policy("p"))
    first = found.resolve_policy(policy("p"))
    assert found.resolve_policy(policy("p")) is first, "a status was written"
    informers.put(OPTIMIZATION_POLICIES, policy("p", generation=2, mode="Auto"))
    changed = found.resolve_policy(policy("p", generation=2, mode="Auto"))
    assert changed is not first
    assert found.resolve_policy(policy("p", generation=2, mode="Auto")) is changed
    assert [each.policy for each in found._effective.values()] == [changed.policy]
    informers.remove(OPTIMIZATION_POLICIES, policy("p", generation=2))
    assert found.resolve(workload()) is None
    assert found.resolve_strategy(None, is_required=True)
    assert found._effective == {}


def test_resolver_uses_the_default_policy_for_workloads_that_no_policy_selects() -> None:
    none = resolver(FakeInformerSet())
    assert none.resolve(workload()) is None
    assert none.resolve_strategy(None, is_required=False) is None
    default_spec = none.resolve_strategy(None, is_required=True)
    assert default_spec
    assert default_spec.strategy == OptimizationPolicySpec().strategy_name
    denied = {"namespaces": {"deny": ["bank"]}, "namespaceSelector": {"matchLabels": {"team": "a"}}}
    informers = FakeInformerSet()
    found = resolver(informers, defaultPolicy={"strategy": {"name": "vpa"}, "selector": denied})
    for name, team in (("bank", "a"), ("shop", "b")):
        informers.put(NAMESPACES, namespace(name, team=team))
        assert found.resolve(workload(namespace=name)) is None
    informers.put(NAMESPACES, namespace("shop", team="a"))
    default = found.resolve(workload())
    assert default
    assert (default.name, default.key, default.strategy_spec.strategy) == ("default", DEFAULT_POLICY, "vpa")
    assert found.resolve_strategy(None, is_required=True) == default.strategy_spec
    informers.put(OPTIMIZATION_POLICIES, policy("p"))
    assert found.resolve(workload()) is found.resolve_policy(policy("p"))


@pytest.mark.parametrize("home", [[], [policy("p", mode="Auto")]], ids=["default", "own"])
def test_resolver_uses_no_policy_where_others_cannot_be_read(home: list[Policy]) -> None:
    """A policy with mode Disabled may exist there, and take precedence."""
    informers = FakeInformerSet()
    found = resolver(informers, defaultPolicy={"mode": "Auto"})
    for each in home:
        informers.put(OPTIMIZATION_POLICIES, each)
    informers.forbid(OPTIMIZATION_POLICIES, "lab")
    lost, granted = (found.resolve(workload(namespace=each)) for each in ("lab", "shop"))
    assert lost
    assert granted
    assert "optimizationpolicies.trimtab.io is forbidden in lab; grant list and watch" in lost.problem
    assert granted.problem == ""


@pytest.mark.parametrize("selector", [{}, {"namespaceSelector": {"matchLabels": {"env": "prod"}}}])
def test_resolver_uses_no_policy_where_unread_labels_decide(selector: dict[str, Any]) -> None:
    """A policy with mode Disabled selects production namespaces, and this may be one."""
    informers = FakeInformerSet()
    found = resolver(informers, defaultPolicy={"mode": "Auto"})
    informers.put(OPTIMIZATION_POLICIES, policy("p", mode="Disabled", selector=selector, weight=1))
    informers.forbid(NAMESPACES, "lab")
    lost, granted = (found.resolve(workload(namespace=each)) for each in ("lab", "shop"))
    assert lost
    assert granted
    assert ("namespaces is forbidden in lab" in lost.problem) is bool(selector)
    assert granted.problem == ""


def test_resolver_passes_the_percentile_of_a_policy_to_that_strategy() -> None:
    spec: dict[str, Any] = {
        "metricsConfig": {"percentile": "P95", "safetyFactor": 1.5, "rollingWindow": "48h"},
        "strategy": {"name": "percentile", "settings": {"safety_factor": 2.0}},
    }
    assert effective_policy(policy(**spec)).strategy_spec.decode_settings() == {
        "quantile": 0.95,
        "safety_factor": 2.0,
        "window": 172800.0,
    }
    spec["strategy"] = {"name": "trimtab"}
    of_another = effective_policy(policy(**spec)).strategy_spec.decode_settings()
    assert of_another.keys().isdisjoint({"quantile", "safety_factor", "window"})


@pytest.mark.parametrize(
    ("spec", "risks"),
    [
        ({}, {}),
        ({"goal": "Balanced"}, {}),
        ({"goal": "Savings"}, {"cpu_risk": 0.05, "memory_risk": 1.0}),
        ({"goal": "Reliability"}, {"cpu_risk": 0.005, "memory_risk": 0.05}),
        ({"goal": "Savings", "resourceGoals": {"memory": "Balanced"}}, {"cpu_risk": 0.05}),
        ({"goal": "Batch"}, {"cpu_risk": 0.2, "memory_risk": 0.05}),
        ({"resourceGoals": {"cpu": "Reliability"}}, {"cpu_risk": 0.005}),
        (
            {"goal": "Savings", "strategy": {"settings": {"cpu_risk": 0.03}}},
            {"cpu_risk": 0.03, "memory_risk": 1.0},
        ),
        ({"goal": "Savings", "strategy": {"name": "vpa"}}, {}),
    ],
)
def test_resolver_gives_the_default_strategy_the_risks_of_the_goal(
    spec: dict[str, Any], risks: dict[str, float]
) -> None:
    settings = effective_policy(policy(**spec)).strategy_spec.decode_settings()
    assert {name: value for name, value in settings.items() if name.endswith("_risk")} == risks


@pytest.mark.parametrize(
    "config", [{"percentile": "P95"}, {"safetyFactor": 1.2}, {"rollingWindow": "24h"}, {"percentile": "P90"}]
)
def test_resolver_chooses_the_percentile_strategy_for_a_policy_that_configures_it(
    config: dict[str, Any],
) -> None:
    assert effective_policy(policy(metricsConfig=config)).strategy_spec.strategy == "percentile"
    other = effective_policy(policy(metricsConfig={"provider": "prometheus", "minimumHistory": "2h"}))
    assert other.strategy_spec.strategy == "trimtab"


def test_resolver_shares_equal_specs_of_policies_that_select_apart() -> None:
    some, others = (
        policy(name, selector={"namespaces": {"allow": [name]}}, changes={"minimum": 0.3})
        for name in ("a", "b")
    )
    assert some.spec.selector != others.spec.selector
    assert some.spec.changes is others.spec.changes
    assert some.spec.update_strategy is others.spec.update_strategy
    assert effective_policy(some).spec is some.spec
