"""Derive what Kubernetes derives from the requests and limits of containers: what the pod reserves on its node, as kube-
scheduler counts it (`PodRequests` of k8s.io/component-helpers), and its QoS class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trimtab.kube.kinds.nodes import NodeResources
from trimtab.kube.kinds.pods import Container, Pod, Resources
from trimtab.kube.kinds.workloads import Workload

_NO_RESOURCES = Resources()


def pod_requests(pod: Pod) -> NodeResources:
    """Return the resources that a pod reserves on its node, including its overhead, in millicores and bytes."""
    applied = {
        state.name: state.actual_resources
        for state in pod.container_statuses
        if state.actual_resources is not None
    }
    infeasible = pod.resize is not None and pod.resize.reason == "Infeasible"
    return NodeResources(
        cpu=_sum_requests(pod.containers, pod.pod_resources, applied, infeasible=infeasible, resource="cpu")
        + (pod.overhead.cpu_request or 0),
        memory=_sum_requests(
            pod.containers, pod.pod_resources, applied, infeasible=infeasible, resource="memory"
        )
        + (pod.overhead.memory_request or 0),
    )


def template_requests(workload: Workload) -> NodeResources:
    """Return the resources that a new pod of a workload reserves on its node, in millicores and bytes.

    The overhead is not included: the RuntimeClass adds it when the pod is created.
    """
    whole = workload.pod_resources or _NO_RESOURCES
    return NodeResources(
        cpu=_sum_requests(workload.containers, whole, {}, infeasible=False, resource="cpu"),
        memory=_sum_requests(workload.containers, whole, {}, infeasible=False, resource="memory"),
    )


def _sum_requests(
    containers: Iterable[Container],
    pod_resources: Resources,
    applied: Mapping[str, Resources],
    *,
    infeasible: bool,
    resource: str,
) -> int:
    """Return the request of the pod as a whole if it has one, otherwise the maximum that its containers reserve."""
    field = f"{resource}_request"
    if (of_pod := getattr(pod_resources, field)) is not None:
        return int(of_pod)
    running = sidecars = starting = 0
    is_stated = False
    for each in containers:
        # A limit without a request counts as a request; the API server fills it in for pods, but not for templates.
        wanted = getattr(each.resources, field)
        wanted = getattr(each.resources, f"{resource}_limit") if wanted is None else wanted
        is_stated = is_stated or wanted is not None
        wanted = wanted or 0
        if (has := applied.get(each.name)) is not None:
            # Until a resize is done, the larger of both sizes is reserved. An infeasible resize reserves nothing.
            wanted = (getattr(has, field) or 0) if infeasible else max(wanted, getattr(has, field) or 0)
        if each.role == "init":  # runs alone except for the sidecars started before it
            starting = max(starting, sidecars + wanted)
            continue
        running += wanted
        if each.role == "sidecar":
            sidecars += wanted
    if not is_stated and (limit := getattr(pod_resources, f"{resource}_limit")) is not None:
        return int(limit)  # where no container requests anything, a limit of the pod is its request as well
    return max(running, starting)


GUARANTEED = "Guaranteed"
BURSTABLE = "Burstable"
BEST_EFFORT = "BestEffort"


def qos_class(containers: Iterable[Resources]) -> str:
    """Return the class of a pod with these containers, init containers included."""
    everyone = tuple(containers)
    if all(map(is_guaranteed, everyone)):
        return GUARANTEED
    return BURSTABLE if any(map(_has_requests_or_limits, everyone)) else BEST_EFFORT


def is_guaranteed(has: Resources) -> bool:
    """Return whether both limits are set and requests equal them or are unset."""
    return bool(
        has.cpu_limit
        and has.memory_limit
        and has.cpu_request in {None, has.cpu_limit}
        and has.memory_request in {None, has.memory_limit}
    )


def _has_requests_or_limits(has: Resources) -> bool:
    return any(has.amounts)
