"""Constraints of a workload come from its namespace, the nodes and its autoscalers."""

from __future__ import annotations

from typing import Any

from harness.builders.objects import node
from harness.builders.records import project_object, workload
from trimtab.kube.kinds.hpas import hpa_projection
from trimtab.kube.kinds.nodes import NodeResources, node_projection
from trimtab.kube.kinds.quotas import limit_range_projection, resource_quota_projection
from trimtab.kube.kinds.workloads import Workload, workload_projection
from trimtab.kube.rest.resources import DAEMON_SETS
from trimtab.recommender.workload import ClusterConstraints
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.proposal import Proposal, ResourceTarget
from trimtab.sizing.recommend import recommend_pod

GIB = 1 << 30


def daemons(scheduled: int, **spec: object) -> Workload:
    container = {"name": "agent", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    manifest = {
        "metadata": {"name": "agent", "namespace": "kube-system", "uid": f"agent-{scheduled}"},
        "spec": {"template": {"spec": {"containers": [container], **spec}}},
        "status": {"desiredNumberScheduled": scheduled},
    }
    return project_object(workload_projection(DAEMON_SETS), manifest)


def in_namespace(namespace: str, **content: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", "namespace": namespace, "uid": namespace}, **content}


def test_cluster_constraints_apply_limits_and_quota_of_the_own_namespace() -> None:
    limits = {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}
    quota = in_namespace("shop", status={"hard": {"requests.cpu": "10"}, "used": {"requests.cpu": "4"}})
    near = ClusterConstraints(
        limit_ranges=[project_object(limit_range_projection(), in_namespace("shop", spec=limits))],
        quotas=[project_object(resource_quota_projection(), quota)],
    )
    shop = near.constraints_for(workload(namespace="shop"), replicas=0, hpas=())
    assert (shop.ranges.container_cpu.max, shop.quota.cpu_request, shop.replicas) == (2000, 6000, 1)
    bank = near.constraints_for(workload(namespace="bank"), replicas=3, hpas=())
    assert (bank.ranges.container_cpu.max, bank.quota.cpu_request, bank.replicas) == (None, None, 3)


def test_cluster_constraints_subtract_daemon_sets_from_node_capacity() -> None:
    found = [
        project_object(node_projection(), node("small", cpu="2", memory="4Gi")),
        project_object(node_projection(), node("large", cpu="8", memory="16Gi")),
    ]
    everywhere = ClusterConstraints(nodes=found, daemon_sets=[daemons(2)]).constraints_for(
        workload(), replicas=1, hpas=()
    )
    here_and_there = ClusterConstraints(nodes=found, daemon_sets=[daemons(1)]).constraints_for(
        workload(), replicas=1, hpas=()
    )
    assert everywhere.nodes == (NodeResources(7500, 15 * GIB, 1),)
    assert here_and_there.nodes == (NodeResources(8000, 16 * GIB, 1),)
    assert ClusterConstraints().constraints_for(workload(), replicas=1, hpas=()).nodes == ()


def test_cluster_constraints_count_pod_level_resources_of_daemon_sets() -> None:
    found = [project_object(node_projection(), node("large", cpu="8", memory="16Gi"))]
    whole = daemons(1, resources={"requests": {"cpu": "2", "memory": "3Gi"}})
    around = ClusterConstraints(nodes=found, daemon_sets=[whole]).constraints_for(
        workload(), replicas=1, hpas=()
    )
    assert around.nodes == (NodeResources(6000, 13 * GIB, 1),)


def test_daemon_set_capacity_excludes_other_daemon_sets() -> None:
    """Its own request is what is being sized: were it taken off as well, it could grow only to half of a node."""
    found = [project_object(node_projection(), node("large", cpu="8", memory="16Gi"))]
    own, other = daemons(1), daemons(2)
    near = ClusterConstraints(nodes=found, daemon_sets=[own, other])
    assert near.constraints_for(own, replicas=1, hpas=()).nodes == (NodeResources(7500, 15 * GIB, 1),)
    assert near.constraints_for(other, replicas=1, hpas=()).nodes == (NodeResources(7500, 15 * GIB, 1),)
    assert near.constraints_for(workload(), replicas=1, hpas=()).nodes == (NodeResources(7000, 14 * GIB, 1),)


def test_daemon_set_capacity_includes_its_own_requests() -> None:
    found = [project_object(node_projection(), node("large", cpu="8", memory="16Gi"))]
    own = daemons(1)
    near = ClusterConstraints(nodes=found, daemon_sets=[own]).constraints_for(own, replicas=1, hpas=())
    (recommended,) = recommend_pod(
        own.containers,
        proposals={
            "agent": Proposal(cpu=ResourceTarget(7900.0), memory=ResourceTarget(15.5 * GIB), strategy="test")
        },
        evidence={"agent": Evidence(samples=2000, first_sample_at=0.0, last_sample_at=9e5)},
        rules=PolicyRules().without_step_limits(),
        constraints=near,
        now=9e5,
    )
    assert (recommended.resources.cpu_request, recommended.resources.memory_request) == (
        7900,
        int(15.5 * GIB),
    )


def test_cluster_constraints_name_utilization_autoscalers() -> None:
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
    }
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    scaler = project_object(
        hpa_projection(), in_namespace("shop", spec={"scaleTargetRef": reference, "metrics": [metric]})
    )
    (target,) = ClusterConstraints().constraints_for(workload(), replicas=1, hpas=[scaler]).autoscalers
    assert (target.name, target.resource, target.target) == ("x", "cpu", 0.6)
