"""What one container stands among: its pod, its namespace's limits and quota, the nodes, an autoscaler beside it.

All of it is optional: what is not known does not bound. Amounts are millicores and bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

import msgspec

from trimtab.kube.kinds.hpas import HorizontalPodAutoscaler
from trimtab.kube.kinds.nodes import Node, NodeResources
from trimtab.kube.kinds.pods import Container, Resources
from trimtab.kube.kinds.quotas import LimitRange, LimitRangeItem, ResourceQuota
from trimtab.sizing.recommendation import ResourceName


class AllowedRange(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a namespace's LimitRanges demand of one resource; of several, the strictest."""

    min: int = 0
    max: int | None = None
    default: int | None = None
    """The limit that a container without one is given at creation."""
    ratio: float = inf
    """The most that a limit may be of its request."""


class AllowedRanges(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The demands on each container, and on a pod's containers together."""

    container_cpu: AllowedRange = AllowedRange()
    container_memory: AllowedRange = AllowedRange()
    pod_cpu: AllowedRange = AllowedRange()
    pod_memory: AllowedRange = AllowedRange()


class UtilisationTarget(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A HorizontalPodAutoscaler that holds usage to a share of the request.

    One on an average value or an external metric does not look at requests, and is not listed.
    """

    name: str
    resource: ResourceName
    target: float
    """The share of the request, such as 0.8."""
    highest_seen: float | None = None
    """The highest utilisation that it saw recently, over all containers that it looks at; None: not known."""
    container: str | None = None
    """Only this container of the pod; all when left out."""


class Constraints(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a container stands among."""

    qos_class: str = ""
    """The QoS class of its pod; `trimtab.sizing.qos` works it out."""
    container_count: int = 1
    """How many share the pod."""
    other_containers: Resources = Resources(0, 0, 0, 0)
    """What those that run beside it have together,"""
    running_containers: Resources = Resources(0, 0, 0, 0)
    """and all that stay when the pod has started: an init container that asks for less than they do costs nothing."""
    replicas: int = 1
    ranges: AllowedRanges = AllowedRanges()
    """What its namespace's LimitRanges demand."""
    quota: Resources = Resources()
    """What is left of the namespace's ResourceQuotas; None: there is none on it."""
    nodes: tuple[NodeResources, ...] = ()
    """What one pod can have on the largest nodes, none of which is smaller than another in both; none: not known."""
    autoscalers: tuple[UtilisationTarget, ...] = ()


def merge_limit_ranges(limit_ranges: Iterable[LimitRange]) -> AllowedRanges:
    """The demands of all LimitRanges of a namespace: the strictest of each; of defaults the least."""
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

    def said(part: str) -> list[int]:
        amounts = (getattr(getattr(limits, part), resource) for limits in everyone)
        return [amount for amount in amounts if amount is not None]

    return AllowedRange(
        min=max(said("min"), default=0),
        max=min(said("max"), default=None),
        default=min(said("default_limit"), default=None),
        ratio=min(said("max_limit_request_ratio"), default=inf),
    )


def remaining_quota(quotas: Iterable[ResourceQuota]) -> Resources:
    """What is left of all ResourceQuotas of a namespace, the least of each. Those for some pods only are left out."""
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
    """What a pod can have on the largest of these nodes besides the DaemonSets that run on each.

    That with the most CPU need not be that with the most memory, and a pod has both of the same.
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


def utilisation_targets(
    hpa: HorizontalPodAutoscaler, highest: Mapping[ResourceName, float] | None = None
) -> tuple[UtilisationTarget, ...]:
    """What an autoscaler holds to a share of the request; `highest`: the highest share that history shows, if known.

    Where history is silent the autoscaler's own last look counts.
    """
    seen = highest or {}
    return tuple(
        UtilisationTarget(
            name=hpa.name,
            resource=one.resource,
            target=one.target / 100,
            highest_seen=max(
                (share for share in (seen.get(one.resource), _to_share(one.current)) if share is not None),
                default=None,
            ),
            container=one.container or None,
        )
        for one in hpa.utilization_targets
    )


def _to_share(percent: int | None) -> float | None:
    return None if percent is None else percent / 100


def sum_other_containers(containers: Iterable[Container], name: str) -> Resources:
    """What the containers that run at the same time as this one have together; where one has no limit: of the rest.

    Init containers run one after the other, beside the sidecars alone.
    """
    everyone = tuple(containers)
    is_init = any(one.name == name and one.role == "init" for one in everyone)
    sums = [0, 0, 0, 0]
    for one in everyone:
        if one.name == name or one.role == "init" or (is_init and one.role == "main"):
            continue
        has = with_implied_requests(one.resources)
        for place, amount in enumerate(
            (has.cpu_request, has.cpu_limit, has.memory_request, has.memory_limit)
        ):
            sums[place] += amount or 0
    return Resources(*sums)


def with_implied_requests(has: Resources) -> Resources:
    """As schedulers and quotas count it: a limit without a request is a request as well."""
    return Resources(
        has.cpu_limit if has.cpu_request is None else has.cpu_request,
        has.cpu_limit,
        has.memory_limit if has.memory_request is None else has.memory_request,
        has.memory_limit,
    )
