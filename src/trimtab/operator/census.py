"""Which containers there are to learn of, and which of them run: the live picture, by the names that usage goes by."""

from __future__ import annotations

from trimtab.kube.workloads import Workload
from trimtab.operator.catalog import Catalog
from trimtab.usage.owners import WorkloadContainer


def containers_of(catalog: Catalog, workload: Workload) -> list[WorkloadContainer]:
    """Those that are sized; a kind of somebody's own may have its template elsewhere, but not its pods."""
    found = workload.containers
    if not found and (pods := catalog.pods_of(workload)):
        found = pods[0].containers
    return [WorkloadContainer.of(workload.key, each.name) for each in found if each.role != "init"]


def running(catalog: Catalog) -> set[WorkloadContainer]:
    """Those of pods that are ready: they should have samples."""
    return {
        WorkloadContainer.of(workload.key, each.name)
        for pod in catalog.pods
        if pod.ready and (workload := catalog.workload_of(pod))
        for each in pod.containers
        if each.role != "init"
    }
