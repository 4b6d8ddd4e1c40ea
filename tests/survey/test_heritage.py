"""What a VPA asks for, as a policy."""

from typing import Any

import pytest

from harness.records import folded, workload
from trimtab.kube.vpas import Vpa, vpas
from trimtab.survey.heritage import policy_of

WEB = workload("web", containers=({"name": "app"}, {"name": "proxy"}), labels={"app": "web"})


def vpa(*policies: dict[str, Any]) -> Vpa:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"targetRef": target, "resourcePolicy": {"containerPolicies": list(policies)}}
    return folded(vpas(), {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec})


def test_bounds_of_one_container_bind_no_other() -> None:
    app = {"containerName": "app", "minAllowed": {"cpu": "1"}, "maxAllowed": {"cpu": "2"}}
    found = policy_of(vpa(app), "Auto", [WEB])
    assert found.policy is not None
    assert "resourceBounds" not in found.policy["spec"]
    assert "it has bounds of their own for app; the policy has the widest for all" in found.notes
    rest = {"containerName": "*", "minAllowed": {"cpu": "100m"}, "maxAllowed": {"cpu": "1"}}
    both = policy_of(vpa(app, rest), "Auto", [WEB])
    assert both.policy is not None
    assert both.policy["spec"]["resourceBounds"] == {"cpu": {"min": "100m", "max": "2"}}


@pytest.mark.parametrize(
    ("policy", "note"),
    [
        ({"containerName": "proxy", "mode": "Off"}, "it leaves container proxy alone"),
        (
            {"containerName": "*", "controlledResources": ["memory"]},
            "it leaves cpu of all other containers alone",
        ),
    ],
)
def test_a_vpa_that_leaves_something_alone_becomes_a_policy_that_only_recommends(
    policy: dict[str, Any], note: str
) -> None:
    found = policy_of(vpa(policy), "Auto", [WEB])
    assert found.policy is not None
    assert found.policy["spec"]["mode"] == "Recommend"
    assert any(line.startswith(note) and line.endswith("until its mode is Auto") for line in found.notes)


def test_where_limits_follow_in_one_container_only_they_follow_in_none_and_it_is_told() -> None:
    found = policy_of(vpa({"containerName": "proxy", "controlledValues": "RequestsOnly"}), "Auto", [WEB])
    assert found.policy is not None
    assert found.policy["spec"]["mode"] == "Auto"
    assert found.policy["spec"]["updateStrategy"]["updateRequestsOnly"] is True
    assert any("limits follow requests in some of its containers only" in line for line in found.notes)
