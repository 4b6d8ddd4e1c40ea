"""Policies meet workloads: who selects, who wins, and that an index never changes the answer."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.builders.records import policy, workload
from trimtab.kube.cache.projection import Labels
from trimtab.kube.kinds.policies import Policy
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.resources import CRON_JOBS, DAEMON_SETS, DEPLOYMENTS, STATEFUL_SETS, Resource
from trimtab.operator.policy_matching import MatchingPolicies, PolicyMatcher, count_overlaps

HOME = "trimtab-system"
NAMESPACES = ("shop", "bank", "kube-system", HOME)
ROLLOUTS = Resource("argoproj.io", "v1alpha1", "rollouts", "Rollout")

some_labels = st.sampled_from(
    [dict(zip("ab", values, strict=False)) for values in ("", "x", "y", "xy", "yy")]
)
names = st.sampled_from(NAMESPACES)


LABEL_SELECTORS: tuple[dict[str, Any], ...] = (
    {},
    {"matchLabels": {"a": "x"}},
    {"matchLabels": {"a": "x", "b": "y"}},
    *(
        {"matchLabels": more, "matchExpressions": [{"key": "a", "operator": operator, "values": values}]}
        for operator, values in product(("In", "NotIn"), (["x"], ["x", "y"], ["z"]))
        for more in ({}, {"b": "y"})
    ),
    {"matchExpressions": [{"key": "b", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]},
)
NAME_LISTS = ({"allow": ["shop"]}, {"allow": ["bank", "shop"], "deny": ["shop"]}, {"deny": ["kube-system"]})
TYPES = (
    {"include": ["Deployment"]},
    {"include": ["Rollout.argoproj.io", "CronJob"]},
    {"exclude": ["Deployment", "DaemonSet"]},
)


some_policies = st.builds(
    policy,
    st.sampled_from(("p", "q", "r")),
    namespace=names,
    weight=st.sampled_from((1, 100, 1000)),
    mode=st.sampled_from(("Auto", "Recommend", "Disabled")),
    selector=st.fixed_dictionaries(
        {},
        optional={
            "namespaceSelector": st.sampled_from(LABEL_SELECTORS),
            "workloadSelector": st.sampled_from(LABEL_SELECTORS),
            "namespaces": st.sampled_from(NAME_LISTS),
            "workloadTypes": st.sampled_from(TYPES),
        },
    ),
)
policy_lists = st.lists(some_policies, max_size=5, unique_by=lambda found: found.key)
namespace_labels = st.fixed_dictionaries(
    dict.fromkeys(NAMESPACES, some_labels.map(lambda d: tuple(sorted(d.items()))))
)
some_workloads = st.builds(
    lambda namespace, resource, labels: workload(namespace=namespace, resource=resource, labels=labels),
    names,
    st.sampled_from((DEPLOYMENTS, STATEFUL_SETS, ROLLOUTS)),
    some_labels,
)


def selects(policy: Policy, found: Workload, labels: dict[str, Labels]) -> bool:
    """Return whether the policy selects the workload, by the API's rules without an index."""
    return policy.namespace in (HOME, found.namespace) and policy.spec.selector.matches(
        kind=found.key.kind,
        namespace=found.namespace,
        labels=dict(found.labels),
        namespace_labels=dict(labels[found.namespace]),
    )


def choose(*policies: Policy, of: Workload, namespaces: dict[str, Labels] | None = None) -> MatchingPolicies:
    return PolicyMatcher(policies, namespaces=namespaces or {}, operator_namespace=HOME).match(of)


@settings(max_examples=100)
@given(policies=policy_lists, found=some_workloads, labels=namespace_labels)
def test_property_27_multi_tenant_scoping(
    policies: list[Policy], found: Workload, labels: dict[str, Labels]
) -> None:
    """Namespace selectors, workload selectors, allow and deny lists scope a policy, and deny takes precedence."""
    verdict = choose(*policies, of=found, namespaces=labels)
    assert set(verdict) == {one for one in policies if selects(one, found, labels)}
    for one in verdict:
        assert found.namespace not in one.spec.selector.namespaces.deny
        assert one.namespace in (HOME, found.namespace)


@settings(max_examples=100)
@given(policies=policy_lists, labels=namespace_labels, kept=st.sets(st.sampled_from("ab")))
def test_property_16_workload_discovery(
    policies: list[Policy], labels: dict[str, Labels], kept: set[str]
) -> None:
    """Every workload that a policy's selectors match is found, of whatever kind and in whatever namespace."""
    everything = [
        workload(namespace=namespace, resource=resource, labels=dict.fromkeys(sorted(kept), "x"))
        for namespace, resource in product(NAMESPACES, (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, CRON_JOBS))
    ]
    selection = PolicyMatcher(policies, namespaces=labels, operator_namespace=HOME)
    for one in policies:
        discovered = {found.key for found in everything if one in selection.match(found)}
        assert discovered == {found.key for found in everything if selects(one, found, labels)}


@settings(max_examples=100)
@given(policies=policy_lists, found=some_workloads, labels=namespace_labels, order=st.randoms())
def test_policy_matching_prefers_weight_then_name_in_any_order(
    policies: list[Policy], found: Workload, labels: dict[str, Labels], order: Any
) -> None:
    verdict = choose(*policies, of=found, namespaces=labels)
    assert list(verdict) == sorted(
        verdict, key=lambda one: (-one.spec.weight, one.namespace != HOME, one.namespace, one.name)
    )
    order.shuffle(policies)
    assert choose(*policies, of=found, namespaces=labels) == verdict


@settings(max_examples=100)
@given(policies=policy_lists, workloads=st.lists(some_workloads, max_size=4), labels=namespace_labels)
def test_matcher_reports_an_overlap_to_both_policies(
    policies: list[Policy], workloads: list[Workload], labels: dict[str, Labels]
) -> None:
    selection = PolicyMatcher(policies, namespaces=labels, operator_namespace=HOME)
    found = count_overlaps(selection, workloads)
    for one in policies:
        selected = [verdict for each in workloads if one in (verdict := selection.match(each))]
        assert (one in found) == bool(selected)
        if one in found:
            assert found[one].won + found[one].lost_to.total() == len(selected)
    for winner, loser in product(found, found):
        assert found[winner].won_against[loser] == found[loser].lost_to[winner]


def test_policy_matching_limits_a_policy_to_its_namespace_unless_at_home() -> None:
    cluster, shop = policy("all", weight=1), policy("all", namespace="shop")
    assert choose(cluster, shop, of=workload(namespace="shop")) == (shop, cluster)
    assert choose(cluster, shop, of=workload(namespace="bank")) == (cluster,)


def test_policy_matching_keeps_a_policy_within_its_namespace_whatever_it_names() -> None:
    greedy = policy("greedy", namespace="shop", selector={"namespaces": {"allow": ["bank"]}})
    assert choose(greedy, of=workload(namespace="bank")) == ()
    assert choose(greedy, of=workload(namespace="shop")) == ()


def test_policy_matching_lets_a_heavy_disabled_policy_exclude_workloads() -> None:
    off, on = policy("off", weight=1000, mode="Disabled"), policy("on", mode="Auto")
    assert choose(on, off, of=workload())[0] is off


def test_policy_matching_names_custom_kinds_with_their_group() -> None:
    rollouts = policy(selector={"workloadTypes": {"include": ["Rollout.argoproj.io"]}})
    assert choose(rollouts, of=workload(resource=ROLLOUTS)) == (rollouts,)
    assert choose(rollouts, of=workload()) == ()


def test_policy_matching_selects_nothing_by_an_unreadable_policy() -> None:
    broken = policy(weight=-1)
    assert "weight" in broken.problem
    assert choose(broken, of=workload()) == ()


@pytest.mark.parametrize(
    "selector",
    [
        {"namespaces": {"allow": ["shop"]}},
        {"namespaces": {"deny": ["bank"]}},
        {"workloadTypes": {"include": ["Deployment"]}},
        {"workloadTypes": {"exclude": ["StatefulSet"]}},
        {"workloadSelector": {"matchLabels": {"a": "x"}}},
        {"namespaceSelector": {"matchLabels": {"team": "web"}}},
        {"workloadSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["x"]}]}},
        {
            "namespaceSelector": {
                "matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["pay"]}]
            }
        },
    ],
)
def test_policy_matching_follows_each_part_of_a_selector(selector: dict[str, Any]) -> None:
    teams: dict[str, Labels] = {"shop": (("team", "web"),), "bank": (("team", "pay"),)}
    one = policy(namespace=HOME, selector=selector)
    inside = workload(namespace="shop", resource=DEPLOYMENTS, labels={"a": "x"})
    outside = workload(namespace="bank", resource=STATEFUL_SETS, labels={"a": "y"})
    assert choose(one, of=inside, namespaces=teams) == (one,)
    assert choose(one, of=outside, namespaces=teams) == ()
