"""Available capacity of nodes, quotas and guardrails."""

from __future__ import annotations

from msgspec.structs import replace

from trimtab.intents.capacity import Capacity
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.state import ContainerSize, PodState, TargetState
from trimtab.kube.kinds.nodes import Node, NodeResources
from trimtab.kube.kinds.pods import Container, Pod, Resources
from trimtab.kube.kinds.quotas import ResourceList, ResourceQuota
from trimtab.operator.config.intents import IntentSettings
from trimtab.operator.intents.capacity import available_capacity

GIB = 1 << 30
STATE = TargetState(
    objectives={},
    pods=(PodState(name="web-0", node="a"),),
    replicas=1,
    sizes=(ContainerSize(container="web", cpu_request=1.0, memory_request=float(GIB)),),
)


def node(name: str, *, cpu: int = 4000, unschedulable: bool = False) -> Node:
    capacity = NodeResources(cpu=cpu, memory=16 * GIB, pods=110)
    return Node(name, name, 1, capacity, capacity, True, unschedulable, 0, (), ())


def pod(name: str, on: str, cpu: int) -> Pod:
    container = Container("web", "main", Resources(cpu, None, GIB, None))
    return Pod(
        "shop", name, name, 1, on, "Running", "", True, False, 0, 0, 0, None, (), (), (container,), (), None
    )


def constrain(
    *,
    quotas: tuple[ResourceQuota, ...] = (),
    nodes: tuple[Node, ...] = (),
    other: Pod | None = None,
    **guardrail: object,
) -> PlanConstraints:
    settings = IntentSettings.model_validate({"guardrails": [guardrail]})
    capacity: Capacity = available_capacity(
        nodes=nodes or (node("a"),),
        pods=[pod("web-0", "a", 1000), other or pod("other", "a", 500)],
        quotas=quotas,
        targets={"shop": [STATE]},
        settings=settings,
    )
    return capacity.constrain(PlanConstraints(), STATE, "shop")


def test_available_capacity_subtracts_pods_of_node() -> None:
    limits = constrain()
    assert limits.extra_cpu_in_place == 2.5
    assert limits.extra_pods == 2


def test_available_capacity_subtracts_pod_level_resources_and_overhead() -> None:
    other = replace(
        pod("other", "a", 500), pod_resources=Resources(cpu_request=1500), overhead=Resources(cpu_request=250)
    )
    assert constrain(other=other).extra_cpu_in_place == 1.25


def test_available_capacity_of_cordoned_node_allows_growth() -> None:
    limits = constrain(nodes=(node("a", unschedulable=True),))
    assert limits.extra_pods == 0
    assert limits.extra_cpu_in_place == 2.5


def test_available_capacity_respects_quota_and_cap() -> None:
    quota = ResourceQuota(
        "shop",
        "q",
        "q",
        1,
        ResourceList(3000, None),
        ResourceList(),
        ResourceList(1500, None),
        ResourceList(),
        is_scoped=False,
    )
    assert constrain(quotas=(quota,)).extra_cpu == 1.5
    assert constrain(quotas=(quota,), maxTotalCpu="2").extra_cpu == 1.0
    assert constrain(maxTotalPods=2).extra_pods == 1
