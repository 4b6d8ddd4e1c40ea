"""Test the conversion of a VPA to a policy."""

from typing import Any

from harness.builders.records import project_object, workload
from trimtab.kube.kinds.vpas import VerticalPodAutoscaler, vpa_projection
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.scan.vpa_import import convert_vpa

WEB = workload("web", containers=({"name": "app"}, {"name": "proxy"}), labels={"app": "web"})


def vpa(*policies: dict[str, Any], **more: Any) -> tuple[VerticalPodAutoscaler, dict[str, Any]]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"targetRef": target, "resourcePolicy": {"containerPolicies": list(policies)}, **more}
    return project_object(
        vpa_projection(), {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}
    ), spec


def test_convert_vpa_maps_container_policies_to_rules() -> None:
    found = convert_vpa(
        *vpa(
            {"containerName": "app", "minAllowed": {"cpu": "1"}, "maxAllowed": {"cpu": "2"}},
            {"containerName": "proxy", "mode": "Off"},
            {"containerName": "*", "controlledResources": ["memory"], "maxAllowed": {"memory": "1Gi"}},
        ),
        [WEB],
    )
    assert found.policy is not None
    assert found.policy["spec"]["mode"] == "Auto"
    assert found.policy["spec"]["containers"] == [
        {"name": "app", "resourceBounds": {"cpu": {"min": "1", "max": "2"}}},
        {"name": "proxy", "controlledResources": []},
        {
            "name": "*",
            "controlledResources": ["memory"],
            "resourceBounds": {"memory": {"max": "1Gi"}},
        },
    ]
    assert found.notes == ()


def test_convert_vpa_notes_limits_that_follow_in_some_containers_only() -> None:
    found = convert_vpa(*vpa({"containerName": "proxy", "controlledValues": "RequestsOnly"}), [WEB])
    assert found.policy is not None
    assert found.policy["spec"]["mode"] == "Auto"
    assert found.policy["spec"]["updateStrategy"]["updateRequestsOnly"] is True
    assert any("limits follow the requests of some containers only" in line for line in found.notes)


def test_convert_vpa_keeps_startup_boost_factor() -> None:
    boost = {"startupBoost": {"cpu": {"type": "Factor", "factor": 3, "durationSeconds": 60}}}
    found = convert_vpa(*vpa(**boost), [WEB])
    assert found.policy is not None
    assert found.policy["spec"]["updateStrategy"]["startupBoost"] == {"factor": 3}
    assert "its startupBoost ends when a pod is ready, after 5 minutes at the latest" in found.notes
    fixed = convert_vpa(*vpa(startupBoost={"cpu": {"type": "Quantity", "quantity": "1"}}), [WEB])
    assert fixed.policy is not None
    assert "startupBoost" not in fixed.policy["spec"]["updateStrategy"]
    assert "its startupBoost is omitted: a policy supports only a factor" in fixed.notes


def test_convert_vpa_notes_fields_without_equivalent() -> None:
    named = {"containerName": "app", "oomBumpUpRatio": "1.5"}
    found = convert_vpa(*vpa(named, updatePolicy={"updateMode": "Recreate", "minReplicas": 3}), [WEB])
    assert found.notes == (
        "updatePolicy.minReplicas is omitted: a policy has no such field",
        "containerPolicies[app].oomBumpUpRatio is omitted: a policy has no such field for one container",
    )


def test_convert_vpa_names_owner_of_owned_target() -> None:
    owner = WorkloadKey("Shop.example", "shop", "all")
    found = convert_vpa(*vpa(), [], {WEB.key: owner})
    assert found.policy is None
    assert found.notes == (
        "its target, Deployment web, is owned by Shop.example shop/all; name the owner in targetRef",
    )
