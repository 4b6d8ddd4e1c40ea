"""Records of LimitRanges and ResourceQuotas, in millicores and bytes."""

from typing import Any

from harness.builders.records import project_object
from trimtab.kube.kinds.quotas import (
    ResourceList,
    ResourceQuota,
    ResourceRatios,
    limit_range_projection,
    resource_quota_projection,
)

NAMED = {"metadata": {"name": "some", "namespace": "shop"}}
GIB = 1 << 30


def quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> ResourceQuota:
    return project_object(
        resource_quota_projection(), {**NAMED, "spec": spec, "status": {"hard": hard, "used": used or {}}}
    )


def test_limit_range_is_read_for_containers_and_pods_separately() -> None:
    container = {
        "type": "Container",
        "min": {"cpu": "50m"},
        "max": {"cpu": "2", "memory": "4Gi"},
        "default": {"memory": "1Gi"},
        "defaultRequest": {"memory": "512Mi"},
        "maxLimitRequestRatio": {"cpu": "2500m"},
    }
    found = project_object(
        limit_range_projection(), {**NAMED, "spec": {"limits": [container, {"type": "Pod"}]}}
    )
    first, second = found.limits
    assert (first.type, second.type) == ("Container", "Pod")
    assert (first.min, first.max) == (ResourceList(50), ResourceList(2000, 4 * GIB))
    assert (first.default_request, first.default_limit) == (
        ResourceList(None, GIB // 2),
        ResourceList(None, GIB),
    )
    assert first.max_limit_request_ratio == ResourceRatios(2.5)
    assert (second.min, second.max_limit_request_ratio) == (ResourceList(), ResourceRatios())


def test_quota_accepts_plain_names_of_requests() -> None:
    found = quota({"cpu": "4", "requests.memory": "8Gi", "limits.cpu": "9", "pods": "3"}, {"cpu": "1500m"})
    assert (found.hard_requests, found.hard_limits) == (ResourceList(4000, 8 * GIB), ResourceList(9000))
    assert found.used_requests == ResourceList(1500)


def test_quota_for_some_pods_is_distinguished() -> None:
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}
    assert not quota({"cpu": "4"}).is_scoped
    assert quota({"cpu": "4"}, scopes=["NotBestEffort"]).is_scoped
    assert quota({"cpu": "4"}, scopeSelector=selector).is_scoped
