"""Meaning of an OptimizationPolicy: selected workloads, and limits."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.api import InvalidObjectError, LabelSelector, OptimizationPolicy, Quantity
from trimtab.api.optimizationpolicy import (
    LimitMode,
    NamespaceFilter,
    OptimizationPolicySpec,
    PolicyMode,
    PolicySelector,
    WorkloadTypeFilter,
)

SEED: dict[str, Any] = {
    "apiVersion": "trimtab.io/v1alpha1",
    "kind": "OptimizationPolicy",
    "metadata": {"name": "production-workloads", "namespace": "trimtab-system"},
    "spec": {
        "mode": "Auto",
        "selector": {
            "namespaceSelector": {"matchLabels": {"environment": "production"}},
            "workloadSelector": {"matchLabels": {"optimize": "true"}},
            "namespaces": {"allow": ["default", "production"], "deny": ["kube-system"]},
        },
        "metricsConfig": {
            "provider": "prometheus",
            "rollingWindow": "24h",
            "percentile": "P90",
            "safetyFactor": 1.2,
        },
        "resourceBounds": {"cpu": {"min": "100m", "max": "4000m"}, "memory": {"min": "128Mi", "max": "8Gi"}},
        "updateStrategy": {"allowInPlaceResize": True, "allowRecreate": False, "updateRequestsOnly": True},
        "reconciliationInterval": "5m",
    },
    "status": {
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "lastTransitionTime": "2024-01-15T10:00:00Z",
                "reason": "PolicyValid",
                "message": "Policy is active and processing workloads",
            }
        ],
        "workloads": [
            {
                "kind": "Deployment",
                "name": "web-deployment",
                "namespace": "production",
                "lastRecommendation": "2024-01-15T10:05:00Z",
                "lastApplied": "2024-01-15T10:05:00Z",
                "recommendations": [{"container": "nginx", "cpu": "500m", "memory": "512Mi"}],
                "status": "Applied",
            }
        ],
    },
}

names = st.sampled_from(["default", "production", "kube-system", "web"])
kinds = st.sampled_from(["Deployment", "StatefulSet", "Job", "Rollout.argoproj.io"])


def spec(**fields: Any) -> OptimizationPolicySpec:
    return OptimizationPolicy.read({"spec": fields}).spec


def test_policy_of_the_seed_reads_and_writes_back_unchanged() -> None:
    written = OptimizationPolicy.read(SEED).to_manifest()
    assert written["status"] == SEED["status"]
    assert written["spec"]["selector"] == SEED["spec"]["selector"]
    assert written["spec"]["resourceBounds"]["cpu"] == {"min": "100m", "max": "4"}
    assert OptimizationPolicy.read(written) == OptimizationPolicy.read(SEED)


def test_policy_defaults_are_cautious() -> None:
    careful = spec()
    assert careful.mode is PolicyMode.RECOMMEND
    assert careful.weight == 100
    assert careful.update_strategy.allow_recreate is False
    assert careful.effective_limit_rule("memory").mode is LimitMode.KEEP


@given(allow=st.frozensets(names), deny=st.frozensets(names), namespace=names)
def test_deny_wins_over_allow(allow: frozenset[str], deny: frozenset[str], namespace: str) -> None:
    admitted = NamespaceFilter(allow=tuple(allow), deny=tuple(deny)).matches(namespace)
    assert admitted == (namespace not in deny and (not allow or namespace in allow))


@given(include=st.frozensets(kinds), kind=kinds)
def test_types_are_included_or_excluded(include: frozenset[str], kind: str) -> None:
    assert WorkloadTypeFilter(include=tuple(include)).matches(kind) == (not include or kind in include)
    assert WorkloadTypeFilter(exclude=tuple(include)).matches(kind) == (kind not in include)


@given(flags=st.tuples(*[st.booleans()] * 4))
def test_policy_selector_requires_all_its_parts(flags: tuple[bool, bool, bool, bool]) -> None:
    by_namespace, by_type, by_namespace_label, by_label = flags
    selector = PolicySelector(
        namespaces=NamespaceFilter(allow=("shop",)),
        workload_types=WorkloadTypeFilter(exclude=("Job",)),
        namespace_selector=LabelSelector(match_labels={"env": "prod"}),
        workload_selector=LabelSelector(match_labels={"size": "me"}),
    )
    selected = selector.matches(
        kind="Deployment" if by_type else "Job",
        namespace="shop" if by_namespace else "bank",
        labels={"size": "me"} if by_label else {},
        namespace_labels={"env": "prod"} if by_namespace_label else {"env": "test"},
    )
    assert selected == all(flags)


def test_policy_selector_that_is_empty_selects_everything() -> None:
    assert PolicySelector().matches(kind="Job", namespace="any", labels={}, namespace_labels={})


def test_limits_keep_their_ratio_once_they_may_change() -> None:
    assert (
        spec(updateStrategy={"updateRequestsOnly": False}).effective_limit_rule("cpu").mode
        is LimitMode.KEEP_RATIO
    )


def test_limits_follow_their_policy_for_each_resource_apart() -> None:
    policy = spec(
        updateStrategy={"updateRequestsOnly": False},
        limitPolicy={"cpu": {"mode": "Remove"}, "memory": {"mode": "Headroom", "headroom": "256Mi"}},
    )
    assert policy.effective_limit_rule("cpu").mode is LimitMode.REMOVE
    assert policy.effective_limit_rule("memory").headroom == Quantity.parse("256Mi")


def test_limit_policy_must_be_keep_if_only_requests_may_change() -> None:
    keep, ratio = {"mode": "Keep"}, {"mode": "KeepRatio"}
    assert spec(limitPolicy={"cpu": keep, "memory": keep}).effective_limit_rule("cpu").mode is LimitMode.KEEP
    with pytest.raises(InvalidObjectError, match=r"^spec.limitPolicy: limits stay as they are"):
        spec(limitPolicy={"cpu": keep, "memory": ratio})
