"""ResourceQuotas and LimitRanges of simulated namespaces, as admission of the API server enforces them.

Both are checked at the creation and at the resize of a pod. A quota forbids only what adds to its usage; a LimitRange
fills in what a new pod leaves open. `tests/lab/simulator/test_namespace_limits.py` compares the answers with those of a real server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trimtab.kube.errors import Forbidden, Status
from trimtab.kube.kinds.pods import Container, RequestLimit, Resources
from trimtab.kube.kinds.quotas import LimitRange, LimitRangeItem, ResourceList, ResourceQuota


def sum_usage(pods: Iterable[Sequence[Container]]) -> tuple[ResourceList, ResourceList]:
    """Return the requests and the limits of all pods of a namespace, as a quota counts them."""
    totals = [0, 0, 0, 0]
    for containers in pods:
        for each in containers:
            size = each.resources.with_implied_requests()
            for place, amount in enumerate(
                (size.cpu_request, size.memory_request, size.cpu_limit, size.memory_limit)
            ):
                totals[place] += amount or 0
    return ResourceList(*totals[:2]), ResourceList(*totals[2:])


def check_quota(quota: ResourceQuota, before: Sequence[Container], after: Sequence[Container]) -> None:
    """Raise Forbidden if a pod that changes so, or that is new, exceeds a quota. `quota` counts it as before."""
    (old_requests, old_limits), (new_requests, new_limits) = sum_usage([before]), sum_usage([after])
    for kind, hard, used, old, new in (
        ("requests", quota.hard_requests, quota.used_requests, old_requests, new_requests),
        ("limits", quota.hard_limits, quota.used_limits, old_limits, new_limits),
    ):
        for resource in ("cpu", "memory"):
            most, has = getattr(hard, resource), getattr(used, resource) or 0
            if most is None:
                continue
            if not before and not _has_all(after, kind, resource):
                raise _forbid(f"failed quota: {quota.name}: must specify {kind}.{resource}")
            added = getattr(new, resource) - getattr(old, resource)
            if added > 0 and has + added > most:
                raise _forbid(
                    f"exceeded quota: {quota.name}, requested: {kind}.{resource}={added}, "
                    f"used: {kind}.{resource}={has}, limited: {kind}.{resource}={most}"
                )


def check_limit_range(limit_range: LimitRange, containers: Sequence[Container]) -> None:
    """Raise Forbidden if a container has less or more than a LimitRange permits."""
    for item in limit_range.limits:
        for each in containers:
            size = each.resources.with_implied_requests()
            for resource, (request, limit) in (("cpu", size.cpu), ("memory", size.memory)):
                least, most = getattr(item.min, resource), getattr(item.max, resource)
                for kind, amount in (("request", request), ("limit", limit)):
                    if least is not None and (amount if amount is not None else least) < least:
                        raise _forbid(
                            f"minimum {resource} usage per Container is {least}, but {kind} is {amount}"
                        )
                    if most is not None and (amount if amount is not None else most) > most:
                        raise _forbid(
                            f"maximum {resource} usage per Container is {most}, but {kind} is {amount}"
                        )


def fill_defaults(limit_range: LimitRange, container: Container) -> Resources:
    """Return the resources that a container of a new pod gets where it leaves them open."""
    size = container.resources
    for item in limit_range.limits:
        size = Resources.from_pairs(
            _fill_pair(item, "cpu", size.cpu), _fill_pair(item, "memory", size.memory)
        )
    return size


def _fill_pair(item: LimitRangeItem, resource: str, has: RequestLimit) -> RequestLimit:
    # The API server first sets a request to its limit, and the defaults of a LimitRange follow.
    request = has.limit if has.request is None else has.request
    limit = getattr(item.default_limit, resource) if has.limit is None else has.limit
    if request is None:
        request = getattr(item.default_request, resource)
    return RequestLimit(request, limit)


def _has_all(containers: Sequence[Container], kind: str, resource: str) -> bool:
    name = f"{resource}_{kind.removesuffix('s')}"
    return all(getattr(each.resources.with_implied_requests(), name) is not None for each in containers)


def _forbid(message: str) -> Forbidden:
    return Forbidden(Status(message=f"pods is forbidden: {message}", reason="Forbidden", code=Forbidden.code))
