"""The size that a pod is born with: the one in effect, where `tend` would bring it there right afterwards.

So it is scheduled by what it will ask for, and not by what its template says. Whatever is in doubt is left to `tend`: a
resize that is refused costs nothing, and a birth that is refused costs a pod. So a pod keeps its QoS class, asks for
the same things as before, and is not born where a LimitRange or quota of its namespace might refuse it for our sake.

Left out: startup boosts. A pod finds its node by its own size, and gets more once it is there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from trimtab.actuation.change_annotations import read_change_annotations
from trimtab.actuation.effective_size import Assignment
from trimtab.actuation.resources import Sizes, container_sizes, has_increase
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.quotas import LimitRange, ResourceList, ResourceQuota
from trimtab.kube.kinds.workloads import Workload
from trimtab.sizing.constraints import AllowedRange, merge_limit_ranges
from trimtab.sizing.qos import qos_class


def admission_size(
    pod: Pod,
    workload: Workload,
    *,
    excluded: Collection[str],
    limit_ranges: Sequence[LimitRange],
    quotas: Iterable[ResourceQuota],
) -> Sizes:
    """What containers of a pod of this workload are to have from the start; none that have it, are left to `tend`, or
    `alone`, for they are not ours to size.
    """
    marks = read_change_annotations(workload)
    if marks is None or workload.deleting:
        return {}
    made, template = container_sizes(pod.containers), container_sizes(workload.containers)
    assignment = Assignment.from_annotations(marks, template, excluded=excluded)
    own = assignment.assigned_size(pod)
    # One that has yet to be injected would be found beside others that are not as made any more, and left as it is.
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
    """Whether the LimitRanges admit it; one for whole pods also counts init containers, and is not second-guessed."""
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
    """Whether more CPU or memory could come to be too much for it."""
    return ResourceList() != quota.hard_requests or ResourceList() != quota.hard_limits
