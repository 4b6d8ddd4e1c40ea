"""Constraints of a container, read from the objects of the cluster."""

from __future__ import annotations

from typing import Any

from trimtab.kube.kinds.hpas import AutoscalerTarget, HorizontalPodAutoscaler, UtilizationTarget
from trimtab.kube.kinds.nodes import Node, NodeResources
from trimtab.kube.kinds.pod_requests import qos_class
from trimtab.kube.kinds.pods import Container, Resources
from trimtab.kube.kinds.quotas import LimitRange, LimitRangeItem, ResourceList, ResourceQuota, ResourceRatios
from trimtab.sizing.constraints import (
    AllowedRange,
    largest_node_capacities,
    list_autoscaler_constraints,
    merge_limit_ranges,
    remaining_quota,
    sum_other_containers,
)

GIB = 2**30


def node(name: str, cpu: int, memory: int, **more: Any) -> Node:
    fields = {"ready": True, "unschedulable": False, "labels": (), **more}
    node_resources = NodeResources(cpu=cpu, memory=memory, pods=110)
    return Node(
        name=name,
        uid=name,
        version=1,
        capacity=node_resources,
        allocatable=node_resources,
        created=0,
        annotations=(),
        **fields,
    )


def test_merge_limit_ranges_keeps_the_strictest_bounds() -> None:
    def one(kind: str, least: int | None, most: int | None, ratio: float | None) -> LimitRange:
        amounts = ResourceList(most, None)
        limits = LimitRangeItem(
            kind, ResourceList(least), amounts, ResourceList(), amounts, ResourceRatios(ratio)
        )
        return LimitRange("shop", f"{kind}-{most}", "", 1, (limits,))

    found = merge_limit_ranges(
        [one("Container", 10, 4000, 4.0), one("Container", 50, 2000, None), one("Pod", None, 8000, None)]
    )
    assert found.container_cpu == AllowedRange(min=50, max=2000, default=2000, ratio=4.0)
    assert found.pod_cpu.max == 8000
    assert found.container_memory == AllowedRange()


def test_remaining_quota_is_the_least_of_all_unscoped_quotas() -> None:
    def quota(name: str, hard: int, used: int | None, *, scoped: bool = False) -> ResourceQuota:
        return ResourceQuota(
            "shop",
            name,
            "",
            1,
            ResourceList(hard),
            ResourceList(),
            ResourceList(used),
            ResourceList(),
            scoped,
        )

    found = remaining_quota([quota("a", 1000, 400), quota("b", 500, None), quota("c", 10, 10, scoped=True)])
    assert found == Resources(500, None, None, None)
    assert remaining_quota([]) == Resources()


def test_largest_node_capacities_skips_unschedulable_nodes() -> None:
    nodes = [
        node("small", 4000, 16 * GIB),
        node("away", 64_000, 256 * GIB, ready=False),
        node("cordoned", 64_000, 256 * GIB, unschedulable=True),
    ]
    assert largest_node_capacities(nodes, NodeResources(cpu=500, memory=GIB)) == (
        NodeResources(cpu=3500, memory=15 * GIB, pods=1),
    )
    assert largest_node_capacities([], NodeResources()) == ()


def test_largest_node_capacities_keeps_cpu_and_memory_of_the_same_node() -> None:
    nodes = [node("a", 64_000, 128 * GIB), node("b", 16_000, 512 * GIB), node("c", 16_000, 64 * GIB)]
    assert largest_node_capacities(nodes, NodeResources()) == (
        NodeResources(64_000, 128 * GIB, 1),
        NodeResources(16_000, 512 * GIB, 1),
    )


def test_list_autoscaler_constraints_returns_the_share_that_the_autoscaler_saw() -> None:
    hpa = HorizontalPodAutoscaler(
        "shop", "web", "", 1, AutoscalerTarget("Deployment", "apps", "web"), 1, 9,
        (UtilizationTarget("cpu", 80, "", 40), UtilizationTarget("memory", 70, "app", None)),
    )  # fmt: skip
    cpu, memory = list_autoscaler_constraints(hpa)
    assert (cpu.target, cpu.highest_seen, cpu.container) == (0.8, 0.4, None)
    assert (memory.target, memory.highest_seen, memory.container) == (0.7, None, "app")


def test_sum_other_containers_counts_concurrent_containers_only() -> None:
    pod = [
        Container("app", "main", Resources(100, 200, 10, None)),
        Container("proxy", "sidecar", Resources(10, 20, 1, 2)),
        Container("setup", "init", Resources(5000, None, 500, None)),
    ]
    assert sum_other_containers(pod, "app") == Resources(10, 20, 1, 2)
    assert sum_other_containers(pod, "setup") == Resources(10, 20, 1, 2)
    assert sum_other_containers(pod, "") == Resources(110, 220, 11, 2)


def test_qos_class_matches_kubernetes() -> None:
    guaranteed = Resources(100, 100, GIB, GIB)
    assert qos_class([guaranteed, Resources(None, 100, None, GIB)]) == "Guaranteed"
    assert qos_class([guaranteed, Resources(100, 100)]) == "Burstable"
    assert qos_class([Resources(), Resources(0, None, 0, None)]) == "BestEffort"
    assert qos_class([Resources(), Resources(None, None, None, GIB)]) == "Burstable"
