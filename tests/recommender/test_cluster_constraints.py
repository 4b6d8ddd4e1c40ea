"""What stands around a workload is that of its own namespace, the nodes that there are, and its own autoscalers."""

from __future__ import annotations

from typing import Any

from harness.objects import node
from harness.records import folded, workload
from trimtab.kube.kinds.hpas import hpas
from trimtab.kube.kinds.nodes import Room, nodes
from trimtab.kube.kinds.quotas import limit_ranges, quotas
from trimtab.kube.kinds.workloads import workloads
from trimtab.kube.rest.resources import DAEMON_SETS
from trimtab.recommender.cluster_constraints import Neighbourhood
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.policy_rules import Rules
from trimtab.sizing.proposal import Ask, Proposal
from trimtab.sizing.recommend import recommend_pod

GIB = 1 << 30


def daemons(scheduled: int, **spec: Any) -> Any:
    container = {"name": "agent", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    manifest = {
        "metadata": {"name": "agent", "namespace": "kube-system", "uid": f"agent-{scheduled}"},
        "spec": {"template": {"spec": {"containers": [container], **spec}}},
        "status": {"desiredNumberScheduled": scheduled},
    }
    return folded(workloads(DAEMON_SETS), manifest)


def in_namespace(namespace: str, **content: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", "namespace": namespace, "uid": namespace}, **content}


def test_a_namespaces_limits_and_quota_are_around_its_own_workloads_only() -> None:
    limits = {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}
    quota = in_namespace("shop", status={"hard": {"requests.cpu": "10"}, "used": {"requests.cpu": "4"}})
    near = Neighbourhood(
        limit_ranges=[folded(limit_ranges(), in_namespace("shop", spec=limits))],
        quotas=[folded(quotas(), quota)],
    )
    shop = near.around(workload(namespace="shop"), replicas=0, hpas=())
    assert (shop.ranges.container_cpu.max, shop.quota.cpu_request, shop.replicas) == (2000, 6000, 1)
    bank = near.around(workload(namespace="bank"), replicas=3, hpas=())
    assert (bank.ranges.container_cpu.max, bank.quota.cpu_request, bank.replicas) == (None, None, 3)


def test_what_runs_on_every_node_takes_its_part_of_each() -> None:
    found = [
        folded(nodes(), node("small", cpu="2", memory="4Gi")),
        folded(nodes(), node("large", cpu="8", memory="16Gi")),
    ]
    everywhere = Neighbourhood(nodes=found, daemon_sets=[daemons(2)]).around(workload(), replicas=1, hpas=())
    here_and_there = Neighbourhood(nodes=found, daemon_sets=[daemons(1)]).around(
        workload(), replicas=1, hpas=()
    )
    assert everywhere.nodes == (Room(7500, 15 * GIB, 1),)
    assert here_and_there.nodes == (Room(8000, 16 * GIB, 1),)
    assert Neighbourhood().around(workload(), replicas=1, hpas=()).nodes == ()


def test_daemon_set_with_resources_as_a_whole_takes_those_of_each_node() -> None:
    found = [folded(nodes(), node("large", cpu="8", memory="16Gi"))]
    whole = daemons(1, resources={"requests": {"cpu": "2", "memory": "3Gi"}})
    around = Neighbourhood(nodes=found, daemon_sets=[whole]).around(workload(), replicas=1, hpas=())
    assert around.nodes == (Room(6000, 13 * GIB, 1),)


def test_daemon_set_has_what_the_others_leave_of_a_node() -> None:
    """Its own request is what is being sized: were it taken off as well, it could grow only to half of a node."""
    found = [folded(nodes(), node("large", cpu="8", memory="16Gi"))]
    own, other = daemons(1), daemons(2)
    near = Neighbourhood(nodes=found, daemon_sets=[own, other])
    assert near.around(own, replicas=1, hpas=()).nodes == (Room(7500, 15 * GIB, 1),)
    assert near.around(other, replicas=1, hpas=()).nodes == (Room(7500, 15 * GIB, 1),)
    assert near.around(workload(), replicas=1, hpas=()).nodes == (Room(7000, 14 * GIB, 1),)


def test_daemon_set_grows_into_the_whole_node() -> None:
    found = [folded(nodes(), node("large", cpu="8", memory="16Gi"))]
    own = daemons(1)
    near = Neighbourhood(nodes=found, daemon_sets=[own]).around(own, replicas=1, hpas=())
    (recommended,) = recommend_pod(
        own.containers,
        proposals={"agent": Proposal(cpu=Ask(7900.0), memory=Ask(15.5 * GIB), strategy="test")},
        evidence={"agent": Evidence(samples=2000, first=0.0, last=9e5)},
        rules=Rules().without_steps(),
        around=near,
        now=9e5,
    )
    assert (recommended.resources.cpu_request, recommended.resources.memory_request) == (
        7900,
        int(15.5 * GIB),
    )


def test_autoscalers_on_a_share_of_the_request_are_told_by_name() -> None:
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
    }
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    scaler = folded(hpas(), in_namespace("shop", spec={"scaleTargetRef": reference, "metrics": [metric]}))
    (target,) = Neighbourhood().around(workload(), replicas=1, hpas=[scaler]).autoscalers
    assert (target.name, target.resource, target.target) == ("x", "cpu", 0.6)
