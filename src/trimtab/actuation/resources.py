"""Compare, merge, write and read the sizes of a pod: the resources of each of its containers.

Only containers that run side by side are sized: init containers finish before anything can be learned about
them. Resources of the pod as a whole are not supported; a workload that has them is skipped.

Applying, previewing and printing all use the same patch of a pod template. Containers are merged in it by name, as
built-in kinds do; fields that are left out stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import msgspec

from trimtab.api.quantity import MIB, format_exact, format_step
from trimtab.kube.kinds.pods import Container, Pod, RequestLimit, Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.client import Object
from trimtab.sizing.guards.requests import round_up

Sizes = Mapping[str, Resources]
"""Resources by container name."""

ContainerName = Annotated[str, msgspec.Meta(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")]
"""A name that the API server accepts: names in annotations are written by whoever may annotate the workload."""

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
"""A number or a time in seconds of an annotation; others would overflow in what computes with it."""

_CPU_ROUNDING = 2
"""Millicores by which the kernel's shares and quotas may differ from the request."""


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """The most that an administrator lets a container have, in millicores and bytes; None without a limit.

    Sizes in annotations are bounded by it: whoever may annotate a workload writes them, and they would bypass the
    limits of policies. What the owner wrote into the template is allowed in any case.
    """

    cpu: int | None = None
    memory: int | None = None

    def clamp(self, sizes: Sizes, *, template: Sizes) -> dict[str, Resources]:
        """Return the sizes, each with at most the limit or the amount in the template."""
        if self.cpu is None and self.memory is None:
            return dict(sizes)
        return {name: self._clamp_container(size, template.get(name)) for name, size in sizes.items()}

    def _clamp_container(self, size: Resources, own: Resources | None) -> Resources:
        cpu, memory = (own.cpu, own.memory) if own else (None, None)
        return Resources.from_pairs(
            _clamp_pair(size.cpu, self.cpu, cpu), _clamp_pair(size.memory, self.memory, memory)
        )


NO_LIMITS = SizeLimits()


def _clamp_pair(wanted: RequestLimit, most: int | None, own: RequestLimit | None) -> RequestLimit:
    if most is None:
        return wanted
    request, limit = wanted
    if request is not None:
        request = min(request, max(most, (own and own.request) or 0))
    # Without a limit in the template, no limit of ours gives the container more than its owner does.
    if own is None:
        limit = None if limit is None else min(limit, most)
    elif own.limit is not None:
        # No limit at all would be more than the ceiling.
        ceiling = max(most, own.limit)
        limit = ceiling if limit is None else min(limit, ceiling)
    # Both at the ceiling would change the QoS class, which the API server rejects; a request of 0 is no request.
    if request and request > 1 and request == limit and wanted.request != wanted.limit:
        request -= 1
    return RequestLimit(request, limit)


def container_sizes(containers: Iterable[Container]) -> dict[str, Resources]:
    return {each.name: each.resources for each in containers if each.role != "init"}


def merge_sizes(current: Sizes, wanted: Sizes) -> dict[str, Resources]:
    """Return the current sizes with the wanted ones in their place, for the containers that exist."""
    return {name: wanted.get(name, resources) for name, resources in current.items()}


def select_sizes(sizes: Sizes, names: Collection[str]) -> dict[str, Resources]:
    """Return the sizes of these containers only."""
    return {name: resources for name, resources in sizes.items() if name in names}


def has_size(pod: Pod, sizes: Sizes) -> bool:
    """Return whether the pod's spec has these sizes. Containers that the pod does not have are ignored."""
    return _sizes_match(container_sizes(pod.containers), sizes)


def is_settled(pod: Pod, sizes: Sizes) -> bool:
    """Return whether the pod has this size in its spec and, as far as the kubelet reports it, in its cgroups."""
    return has_size(pod, sizes) and is_in_effect(pod, sizes)


def is_in_effect(pod: Pod, sizes: Sizes) -> bool:
    """Return whether the kubelet has these sizes in the pod's cgroups, as far as it reports them."""
    if pod.resize is not None:
        return False
    # A kubelet that reports no resources in the status would keep a change waiting forever: the spec alone decides
    # then.
    for state in pod.container_statuses:
        applied, wanted = state.actual_resources, sizes.get(state.name)
        if applied and wanted is not None and applied != wanted and not _is_close(applied, wanted):
            return False
    return True


def has_template_size(pod: Pod, template: Sizes) -> bool:
    """Return whether the pod has the size of its template. Admission may have filled in what the template
    leaves open.
    """
    current = container_sizes(pod.containers)
    return all(
        made is None or made == now
        for name, resources in template.items()
        if name in current
        for made, now in zip(resources.amounts, current[name].amounts, strict=True)
    )


def has_increase(before: Sizes, after: Sizes) -> bool:
    """Return whether any container gets more of anything: such a change has priority."""
    return _has_more(before, after, lambda each: each.amounts)


def increases_requests(before: Sizes, after: Sizes) -> bool:
    """Return whether any container requests more, so that its node needs capacity for it."""
    return _has_more(before, after, lambda each: (each.cpu_request, each.memory_request))


def adds_memory(before: Sizes, after: Sizes) -> bool:
    """Return whether any container gets more memory, by request or limit. No limit counts as more than any
    limit.
    """

    def amounts(each: Resources) -> tuple[float, float]:
        limit = math.inf if each.memory_limit is None else each.memory_limit
        return each.memory_request or 0, limit

    return any(
        new > old
        for name in before
        if name in after
        for old, new in zip(amounts(before[name]), amounts(after[name]), strict=True)
    )


def _has_more(before: Sizes, after: Sizes, amounts: Callable[[Resources], tuple[int | None, ...]]) -> bool:
    return any(
        (new or 0) > (old or 0)
        for name in before
        if name in after
        for old, new in zip(amounts(before[name]), amounts(after[name]), strict=True)
    )


def limit_memory_decrease(current: Resources, wanted: Resources, *, need: int | None) -> Resources:
    """Return the wanted size with memory lowered only to what is needed, or not at all if the need is
    unknown.

    No limit counts as more than any limit, so that none is set while the need is unknown. A limit stays at or
    above its request.
    """
    enough = None if need is None else round_up("memory", need)

    def lower_memory(now: int | None, target: int | None) -> int | None:
        if now is None or target is None or target >= now:
            return target
        return max(target, now if enough is None else min(now, enough))

    request, limit = map(lower_memory, current.memory, wanted.memory)
    if current.memory_limit is None and limit is not None:
        # A first limit is a decrease from all that the node has: below the need, the container would be OOM killed.
        limit = None if enough is None else max(limit, enough)
    if limit is not None:
        limit = max(limit, request or 0)
    return Resources.from_pairs(wanted.cpu, RequestLimit(request, limit))


def keep_memory_limit(current: Resources, wanted: Resources) -> Resources:
    """Return the wanted size with a memory limit that is not lowered. If the limit equals the request, the
    request is not lowered either, because the QoS class would change.
    """
    limit, request = current.memory_limit, wanted.memory_request
    if limit is None or wanted.memory_limit is None or wanted.memory_limit >= limit:
        return wanted
    if current.memory_request in (None, limit):
        request = current.memory_request
    return Resources.from_pairs(wanted.cpu, RequestLimit(request, limit))


def fit_without_growth(current: Resources, wanted: Resources) -> Resources:
    """Return the part of a size that fits if no request can grow and no memory limit can shrink. Limits grow
    where the QoS class allows it.
    """

    def fit(now: RequestLimit, target: RequestLimit) -> RequestLimit:
        if (target.request or 0) <= (now.request or 0):
            return target
        # The limit of a Guaranteed container grows only with its request: the server rejects a change of the QoS
        # class.
        return now if now.request == now.limit else RequestLimit(now.request, target.limit)

    return keep_memory_limit(current, current.combine(wanted, fit))


def is_between(sizes: Sizes, one: Sizes, other: Sizes) -> bool:
    """Return whether each amount lies between those of two sizes, for the containers that both have."""
    return all(
        min(first or 0, second or 0) <= (amount or 0) <= max(first or 0, second or 0)
        for name in one.keys() & other.keys() & sizes.keys()
        for amount, first, second in zip(
            sizes[name].amounts, one[name].amounts, other[name].amounts, strict=True
        )
    )


def restrict_to_fields(current: Resources, wanted: Resources) -> Resources:
    """Return the part of a size that is possible in place: no field is added or removed, and a limit stays at
    or above its request.
    """

    def kept(now: int | None, target: int | None, least: int | None = None) -> int | None:
        if now is None:
            return None
        return max(now, least or 0) if target is None else target

    def restrict(now: RequestLimit, target: RequestLimit) -> RequestLimit:
        request = kept(now.request, target.request)
        return RequestLimit(request, kept(now.limit, target.limit, request))

    return current.combine(wanted, restrict)


def raise_only(current: Resources, wanted: Resources) -> Resources:
    """Return the wanted size with no amount lowered. A container without a limit stays without one, and a
    limit that is to be removed stays above its request until then.
    """

    def at_least(now: RequestLimit, target: RequestLimit) -> RequestLimit:
        request = now.request if target.request is None else max(now.request or 0, target.request)
        limit = None if now.limit is None else max(now.limit, target.limit or 0, request or 0)
        return RequestLimit(request, limit)

    return current.combine(wanted, at_least)


def raise_sizes(sizes: Sizes, *others: Sizes) -> dict[str, Resources]:
    """Return the most that a container has in any of these sizes."""
    found = dict(sizes)
    for other in others:
        found |= {name: raise_only(found.get(name, size), size) for name, size in other.items()}
    return found


def to_manifest(resources: Resources) -> dict[str, Any]:
    """Return the resources as a manifest has them."""
    requests = _format_amounts(resources.cpu_request, resources.memory_request)
    limits = _format_amounts(resources.cpu_limit, resources.memory_limit)
    return {name: amounts for name, amounts in (("requests", requests), ("limits", limits)) if amounts}


def parse_resources(manifest: Mapping[str, Any]) -> Resources:
    """Parse resources as `to_manifest` returns them."""
    return Resources.parse(manifest.get("requests", {}), manifest.get("limits", {}))


def parse_sizes(entry: Mapping[str, Any] | None, container: str) -> dict[str, Resources]:
    """Parse one side of a history entry, which is about one container, or about all if `container` is empty."""
    if not entry:
        return {}
    return (
        {container: parse_resources(entry)}
        if container
        else {name: parse_resources(each) for name, each in entry.items()}
    )


def format_sizes(sizes: Sizes) -> str:
    """Format sizes for people: `web: cpu 100m, memory 64Mi (limit 128Mi)`."""
    return "; ".join(f"{name}: {_format_resources(resources)}" for name, resources in sizes.items())


def _format_resources(resources: Resources) -> str:
    parts = [
        f"{what} {'unset' if request is None else text(request)}"
        + ("" if limit is None else f" (limit {text(limit)})")
        for what, text, request, limit in (
            ("cpu", partial(format_exact, "cpu"), *resources.cpu),
            ("memory", _format_memory, *resources.memory),
        )
        if request is not None or limit is not None
    ]
    return ", ".join(parts) or "no requests or limits"


def _format_memory(count: int | None) -> str:
    """Format memory for people: exact if it is a whole number of MiB, else rounded."""
    return format_step("memory", count) if count and count % MIB else format_exact("memory", count)


def _format_amounts(cpu: int | None, memory: int | None) -> dict[str, str]:
    amounts = {} if cpu is None else {"cpu": format_exact("cpu", cpu)}
    return amounts if memory is None else amounts | {"memory": format_exact("memory", memory)}


def _sizes_match(current: Sizes, wanted: Sizes) -> bool:
    return all(current[name] == resources for name, resources in wanted.items() if name in current)


def _is_close(applied: Resources, wanted: Resources) -> bool:
    for got, asked in zip(applied.cpu, wanted.cpu, strict=True):
        # The kernel rounds shares and quotas: compared exactly, a resize would never count as settled.
        if got is not None and asked is not None and abs(got - asked) > max(_CPU_ROUNDING, asked // 100):
            return False
    return all(
        got is None or asked is None or got == asked
        for got, asked in zip(applied.memory, wanted.memory, strict=True)
    )


def build_template_patch(workload: Workload, sizes: Sizes, *, removing_from: Sizes | None = None) -> Object:
    """Return a patch of the pod template, which a CronJob keeps in the template of its Jobs.

    With `removing_from`, fields that those sizes have and the wanted ones do not have are set to null, so
    that a merge removes them.
    """
    main, sidecars = split_by_role(workload.containers, sizes, removing_from=removing_from)
    containers: Object = {"containers": main} if main or not sidecars else {}
    if sidecars:
        containers["initContainers"] = sidecars
    spec: Object = {"template": {"spec": containers}}
    return {"spec": {"jobTemplate": {"spec": spec}} if workload.kind == "CronJob" else spec}


def split_by_role(
    containers: Iterable[Container], sizes: Sizes, *, removing_from: Sizes | None = None
) -> tuple[list[Object], list[Object]]:
    """Return the main containers and the sidecars, which a manifest keeps in two lists."""
    found: dict[str, list[Object]] = {"main": [], "sidecar": [], "init": []}
    for each in containers:
        if each.name in sizes:
            resources = to_manifest(sizes[each.name])
            for kind, what in list_removed((removing_from or {}).get(each.name), sizes[each.name]):
                resources.setdefault(kind, {})[what] = None
            found[each.role].append({"name": each.name, "resources": resources})
    return found["main"], found["sidecar"]


def list_removed(current: Resources | None, wanted: Resources) -> list[tuple[str, str]]:
    """List the requests and limits that exist and are no longer wanted, as a manifest names them."""
    had, has = to_manifest(current or Resources()), to_manifest(wanted)
    return [
        (kind, what) for kind, amounts in had.items() for what in amounts if what not in has.get(kind, {})
    ]
