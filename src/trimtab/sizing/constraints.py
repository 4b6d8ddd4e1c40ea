"""The constraints of one container: its pod, the limits and quota of its namespace, the nodes, and an autoscaler.

Every constraint is optional: an unknown one does not bound. Amounts are millicores and bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

import msgspec

from trimtab.api.quantity import ResourceName
from trimtab.kube.kinds.hpas import HorizontalPodAutoscaler
from trimtab.kube.kinds.nodes import Node, NodeResources
from trimtab.kube.kinds.pods import Container, Resources
from trimtab.kube.kinds.quotas import LimitRange, LimitRangeItem, ResourceQuota

_NOTHING = (0, 0, 0, 0)


class AllowedRange(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The range that a namespace's LimitRanges allow for one resource; the strictest of several."""

    min: int = 0
    max: int | None = None
    default: int | None = None
    """The limit that a container without one gets at creation."""
    ratio: float = inf
    """The highest ratio of a limit to its request."""


class AllowedRanges(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The allowed ranges of each container, and of a pod's containers together."""

    container_cpu: AllowedRange = AllowedRange()
    container_memory: AllowedRange = AllowedRange()
    pod_cpu: AllowedRange = AllowedRange()
    pod_memory: AllowedRange = AllowedRange()


class AutoscalerConstraint(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A HorizontalPodAutoscaler that keeps usage at a share of the request.

    One on an average value or an external metric ignores requests, and is not listed.
    """

    name: str
    resource: ResourceName
    target: float
    """The share of the request, such as 0.8."""
    highest_seen: float | None = None
    """The highest utilization that it saw recently, over all containers that it looks at; None if unknown."""
    container: str | None = None
    """The container of the pod that it looks at; None for all of them."""


class Constraints(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The constraints of one container."""

    qos_class: str = ""
    """The QoS class of the pod (`trimtab.kube.kinds.pod_requests` computes it)."""
    other_containers: Resources = Resources(*_NOTHING)
    """The sum of the resources of the containers that run beside this one."""
    replicas: int = 1
    ranges: AllowedRanges = AllowedRanges()
    """The ranges that the namespace's LimitRanges allow."""
    quota: Resources = Resources()
    """The remaining amounts of the namespace's ResourceQuotas; None where no quota applies."""
    nodes: tuple[NodeResources, ...] = ()
    """The capacity for one pod on the largest nodes, none of which is smaller than another in both
    resources; empty if unknown.
    """
    autoscalers: tuple[AutoscalerConstraint, ...] = ()


def merge_limit_ranges(limit_ranges: Iterable[LimitRange]) -> AllowedRanges:
    """Return the strictest ranges of all LimitRanges of a namespace; of the defaults, the lowest."""
    found = [limits for one in limit_ranges for limits in one.limits]
    container = [limits for limits in found if limits.type == "Container"]
    pod = [limits for limits in found if limits.type == "Pod"]
    return AllowedRanges(
        container_cpu=_merge_limits(container, "cpu"),
        container_memory=_merge_limits(container, "memory"),
        pod_cpu=_merge_limits(pod, "cpu"),
        pod_memory=_merge_limits(pod, "memory"),
    )


def _merge_limits(found: Iterable[LimitRangeItem], resource: ResourceName) -> AllowedRange:
    everyone = tuple(found)

    def list_amounts(part: str) -> list[int]:
        amounts = (getattr(getattr(limits, part), resource) for limits in everyone)
        return [amount for amount in amounts if amount is not None]

    return AllowedRange(
        min=max(list_amounts("min"), default=0),
        max=min(list_amounts("max"), default=None),
        default=min(list_amounts("default_limit"), default=None),
        ratio=min(list_amounts("max_limit_request_ratio"), default=inf),
    )


def remaining_quota(quotas: Iterable[ResourceQuota]) -> Resources:
    """Return the lowest remaining amounts of all ResourceQuotas of a namespace. Quotas for some pods only are
    left out.
    """
    counting = [one for one in quotas if not one.is_scoped]

    def left(part: str, resource: ResourceName) -> int | None:
        hard_and_used = (
            (getattr(getattr(one, f"hard_{part}"), resource), getattr(getattr(one, f"used_{part}"), resource))
            for one in counting
        )
        return min((hard - (used or 0) for hard, used in hard_and_used if hard is not None), default=None)

    return Resources(
        left("requests", "cpu"), left("limits", "cpu"), left("requests", "memory"), left("limits", "memory")
    )


def largest_node_capacities(nodes: Iterable[Node], daemons: NodeResources) -> tuple[NodeResources, ...]:
    """Return the capacity for a pod on the largest of these nodes beside the DaemonSets that run on each.

    The node with the most CPU need not be the one with the most memory, and a pod gets both from the same
    node.
    """
    usable = {
        (node.allocatable.cpu, node.allocatable.memory)
        for node in nodes
        if node.ready and not node.unschedulable
    }
    found: list[NodeResources] = []
    most_memory = -1
    for cpu, memory in sorted(usable, reverse=True):
        if memory > most_memory:
            most_memory = memory
            found.append(
                NodeResources(cpu=max(cpu - daemons.cpu, 0), memory=max(memory - daemons.memory, 0), pods=1)
            )
    return tuple(found)


def list_autoscaler_constraints(
    hpa: HorizontalPodAutoscaler,
) -> tuple[AutoscalerConstraint, ...]:
    """Return the utilization targets of an autoscaler, with the last value that it saw."""
    return tuple(
        AutoscalerConstraint(
            name=hpa.name,
            resource=one.resource,
            target=one.target / 100,
            highest_seen=None if one.current is None else one.current / 100,
            container=one.container or None,
        )
        for one in hpa.utilization_targets
    )


def sum_other_containers(containers: Iterable[Container], name: str) -> Resources:
    """Return the sum of the resources of the containers that run at the same time as this one; missing limits
    count as 0.

    Init containers run one after another, beside the sidecars only.
    """
    everyone = tuple(containers)
    is_init = name in {one.name for one in everyone if one.role == "init"}
    cpu_request = cpu_limit = memory_request = memory_limit = 0
    for one in everyone:
        if one.name != name and one.role != "init" and not (is_init and one.role == "main"):
            has = one.resources.with_implied_requests()
            cpu_request += has.cpu_request or 0
            cpu_limit += has.cpu_limit or 0
            memory_request += has.memory_request or 0
            memory_limit += has.memory_limit or 0
    return Resources(cpu_request, cpu_limit, memory_request, memory_limit)
