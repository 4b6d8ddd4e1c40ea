"""Run a workload of steady usage from the start of the node, for tests that measure."""

from harness.builders.busybox_workloads import size, template, workload
from harness.cluster.cluster import Cluster
from harness.process import wait_for
from trimtab.usage.usage import PodContainer

NAME = "plodder"
"""The name of the Deployment and of its own namespace."""
_SMALL = size("20m", "32Mi", cpu_limit="200m", memory_limit="64Mi")
_SCRIPT = "while :; do i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done; sleep 0.5; done"


def start_plodder(cluster: Cluster) -> None:
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAME}})
    made = workload("Deployment", NAME, template(_SCRIPT, app=NAME, size=_SMALL), policy="none")
    cluster.call("POST", f"/apis/apps/v1/namespaces/{NAME}/deployments", made)


def running_plodder(cluster: Cluster) -> PodContainer:
    """Its only container, once it runs."""
    path = f"/api/v1/namespaces/{NAME}/pods?fieldSelector=status.phase=Running"
    found: list[str] = []

    def runs() -> bool:
        found[:] = [pod["metadata"]["name"] for pod in cluster.call("GET", path)["items"]]
        return bool(found)

    wait_for(runs, what="the plodder", timeout=120)
    return PodContainer(NAME, found[0], "main")
