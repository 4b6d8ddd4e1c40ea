"""What LimitRanges and ResourceQuotas say, in millicores and bytes."""

from typing import Any

from harness.records import folded
from trimtab.kube.kinds.quotas import Amounts, Quota, Ratios, limit_ranges, quotas

NAMED = {"metadata": {"name": "some", "namespace": "shop"}}
GIB = 1 << 30


def quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> Quota:
    return folded(quotas(), {**NAMED, "spec": spec, "status": {"hard": hard, "used": used or {}}})


def test_a_limit_range_is_read_for_containers_and_pods_apart() -> None:
    container = {
        "type": "Container",
        "min": {"cpu": "50m"},
        "max": {"cpu": "2", "memory": "4Gi"},
        "default": {"memory": "1Gi"},
        "defaultRequest": {"memory": "512Mi"},
        "maxLimitRequestRatio": {"cpu": "2500m"},
    }
    found = folded(limit_ranges(), {**NAMED, "spec": {"limits": [container, {"type": "Pod"}]}})
    first, second = found.limits
    assert (first.type, second.type) == ("Container", "Pod")
    assert (first.least, first.most) == (Amounts(50), Amounts(2000, 4 * GIB))
    assert (first.default_request, first.default_limit) == (Amounts(None, GIB // 2), Amounts(None, GIB))
    assert first.ratio == Ratios(2.5)
    assert (second.least, second.ratio) == (Amounts(), Ratios())


def test_a_quota_may_call_requests_by_their_plain_names() -> None:
    found = quota({"cpu": "4", "requests.memory": "8Gi", "limits.cpu": "9", "pods": "3"}, {"cpu": "1500m"})
    assert (found.hard_requests, found.hard_limits) == (Amounts(4000, 8 * GIB), Amounts(9000))
    assert found.used_requests == Amounts(1500)


def test_a_quota_for_some_pods_only_is_told_apart() -> None:
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}
    assert not quota({"cpu": "4"}).scoped
    assert quota({"cpu": "4"}, scopes=["NotBestEffort"]).scoped
    assert quota({"cpu": "4"}, scopeSelector=selector).scoped
