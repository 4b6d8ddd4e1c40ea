"""The size that a pod gets at admission: the one in effect, if pod sync would bring it there right
afterwards.

The pod is then scheduled by what it will request, and not by its template. Everything in doubt is left to pod
sync: a rejected resize costs nothing, and a rejected pod is a missing pod. So a pod keeps its QoS class and
its set of requests and limits, and is left unchanged where a LimitRange or quota of its namespace might
reject it.

Startup boosts are not applied here: a pod is scheduled by its own size, and gets more once it has a node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from trimtab.actuation.change_annotations import read_change_annotations
from trimtab.actuation.effective_size import Assignment
from trimtab.actuation.resources import NO_LIMITS, SizeLimits, Sizes, container_sizes, has_increase
from trimtab.kube.kinds.pod_requests import qos_class
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.quotas import LimitRange, ResourceList, ResourceQuota
from trimtab.kube.kinds.workloads import Workload
from trimtab.sizing.constraints import AllowedRange, merge_limit_ranges


def admission_size(
    pod: Pod,
    workload: Workload,
    *,
    excluded: Collection[str],
    limit_ranges: Sequence[LimitRange],
    quotas: Iterable[ResourceQuota],
    size_limits: SizeLimits = NO_LIMITS,
) -> Sizes:
    """Return the containers of a new pod that need another size, with that size.

    Containers that already have their size, are left to pod sync, or are `excluded` by the policy are not
    returned.
    """
    annotations = read_change_annotations(workload, size_limits)
    if annotations is None or workload.deleting:
        return {}
    made, template = container_sizes(pod.containers), container_sizes(workload.containers)
    assignment = Assignment.from_annotations(annotations, template, excluded=excluded)
    own = assignment.assigned_size(pod)
    # A pod that still misses an injected container would look resized once that is added, and pod sync would
    # skip it.
    is_whole = assignment.sizes.keys() <= made.keys()
    if not (is_whole and assignment.needs_sync(pod) and _keeps_qos_class(pod, own)):
        return {}
    if not _fits_limit_ranges(own, limit_ranges) or (
        has_increase(made, own) and any(map(_limits_compute, quotas))
    ):
        return {}
    return {name: size for name, size in own.items() if size != made[name]}


def _keeps_qos_class(pod: Pod, own: Sizes) -> bool:
    after = (each.resources if each.role == "init" else own[each.name] for each in pod.containers)
    return qos_class(after) == qos_class(each.resources for each in pod.containers)


def _fits_limit_ranges(own: Sizes, limit_ranges: Sequence[LimitRange]) -> bool:
    """Return whether the LimitRanges admit the size. One for whole pods also counts init containers, and is
    not evaluated here.
    """
    if any(limits.type == "Pod" for each in limit_ranges for limits in each.limits):
        return False
    within = merge_limit_ranges(limit_ranges)
    return all(
        _is_within(size.cpu_request, size.cpu_limit, within.container_cpu)
        and _is_within(size.memory_request, size.memory_limit, within.container_memory)
        for size in own.values()
    )


def _is_within(request: int | None, limit: int | None, within: AllowedRange) -> bool:
    amounts = [amount for amount in (request, limit) if amount is not None]
    in_range = all(within.min <= each and (within.max is None or each <= within.max) for each in amounts)
    return in_range and (not request or not limit or limit / request <= within.ratio)


def _limits_compute(quota: ResourceQuota) -> bool:
    """Return whether more CPU or memory could exceed this quota."""
    return ResourceList() != quota.hard_requests or ResourceList() != quota.hard_limits
