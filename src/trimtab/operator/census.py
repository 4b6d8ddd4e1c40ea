"""Which containers there are to learn of, and which of them run: the live picture, by the names that usage goes by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trimtab.kube.pods import Pod
from trimtab.kube.workloads import Workload
from trimtab.operator.catalog import Catalog
from trimtab.usage.owners import WorkloadContainer
from trimtab.usage.usage import PodContainer


def containers_of(catalog: Catalog, workload: Workload) -> list[WorkloadContainer]:
    """Those that are sized; a kind of somebody's own may have its template elsewhere, but not its pods."""
    found = workload.containers
    if not found and (pods := catalog.pods_of(workload)):
        found = pods[0].containers
    return [WorkloadContainer.of(workload.key, each.name) for each in found if each.role != "init"]


def containers_per_pod(pods: Sequence[Pod], workload: Workload) -> int:
    """Count the containers of a pod that run on after its start; what a mesh injects is in the pods only."""
    found = (workload.containers, *{pod.containers for pod in pods})  # whichever pod comes first
    return max(1, *(sum(each.role != "init" for each in containers) for containers in found))


def running_since(pods: Iterable[Pod]) -> dict[PodContainer, float]:
    """Map the containers of pods that are ready, each of which should have samples, to when they were last started."""
    return {
        PodContainer(pod.namespace, pod.name, state.name): float(
            max(pod.started, state.last_exit.at if state.last_exit else 0)
        )
        for pod in pods
        if pod.ready and not pod.deleting
        for state in pod.states
        if not state.ended and not state.waiting
    }


def running(catalog: Catalog) -> set[WorkloadContainer]:
    """Those of pods that are ready: they should have samples."""
    return {
        WorkloadContainer.of(workload.key, each.name)
        for pod in catalog.pods
        if pod.ready and (workload := catalog.workload_of(pod))
        for each in pod.containers
        if each.role != "init"
    }
