"""The node of the harness: real containers, resized in place, and measured by what clusters measure with."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.cluster import images
from harness.cluster.cluster import Cluster
from harness.peers.prometheus import Prometheus
from harness.process import wait_for
from trimtab.usage.usage import PodContainer

MIB = 1 << 20


@pytest.fixture
def pod(node_cluster: Cluster, namespace: str) -> Callable[[], dict[str, Any]]:
    """A busybox that works a little, running; call it to see how it is now."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    container = {
        "name": "worker",
        "image": images.BUSYBOX,
        "imagePullPolicy": "Never",
        "args": ["-c", "echo at work; while true; do for i in $(seq 1000); do :; done; sleep 0.1; done"],
        "resources": {
            "requests": {"cpu": "100m", "memory": "32Mi"},
            "limits": {"cpu": "200m", "memory": "64Mi"},
        },
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    node_cluster.call("POST", path, {"metadata": {"name": "busy"}, "spec": spec})

    def now() -> dict[str, Any]:
        return node_cluster.call("GET", f"{path}/busy")

    wait_for(lambda: now()["status"]["phase"] == "Running", what="a running pod")
    return now


def _status(pod: dict[str, Any]) -> dict[str, Any]:
    status: dict[str, Any] = pod["status"]["containerStatuses"][0]
    return status


def _memory_limit(container: str) -> int:
    """Return the limit that the kernel enforces, with either version of cgroups."""
    (folder,) = [
        found
        for top in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))
        for found in top.glob(f"kubepods/*/*/{container}")
    ]
    for name in ("memory.limit_in_bytes", "memory.max"):
        if (folder / name).exists():
            return int((folder / name).read_text())
    raise AssertionError(f"no memory limit in {folder}")


def test_node_is_ready(node_cluster: Cluster) -> None:
    assert "Ready" in node_cluster.kubectl("get", "node", "localhost", "--no-headers").split()


def test_node_runs_a_pod_that_accepts_exec(
    node_cluster: Cluster, namespace: str, pod: Callable[[], dict[str, Any]]
) -> None:
    assert node_cluster.kubectl("logs", "busy", f"--namespace={namespace}") == "at work\n"
    said = node_cluster.kubectl("exec", "busy", f"--namespace={namespace}", "--", "cat", "/proc/1/comm")
    assert said == "sh\n"


def test_node_resizes_a_pod_in_place(
    node_cluster: Cluster, namespace: str, pod: Callable[[], dict[str, Any]]
) -> None:
    before = _status(pod())
    container = before["containerID"].removeprefix("containerd://")
    assert _memory_limit(container) == 64 * MIB
    patch = '{"spec": {"containers": [{"name": "worker", "resources": {"limits": {"memory": "96Mi"}}}]}}'
    where = (f"--namespace={namespace}", "--subresource=resize", "--type=strategic", f"--patch={patch}")
    node_cluster.kubectl("patch", "pod", "busy", *where)
    wait_for(lambda: _memory_limit(container) == 96 * MIB, what="the new limit in the cgroup")
    wait_for(
        lambda: _status(pod())["resources"]["limits"]["memory"] == "96Mi", what="the new limit in the status"
    )
    after = _status(pod())
    assert after["containerID"] == before["containerID"]
    assert after["restartCount"] == 0


def test_metrics_server_knows_what_a_pod_uses(node_cluster: Cluster, plodder: PodContainer) -> None:
    path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{plodder.namespace}/pods/{plodder.pod}"
    wait_for(lambda: node_cluster.has(path), what="the first metrics of the pod", timeout=90)
    (main,) = node_cluster.call("GET", path)["containers"]
    assert main["name"] == plodder.container
    assert main["usage"].keys() == {"cpu", "memory"}


def test_prometheus_has_the_series_of_each_container(plodder: PodContainer, prometheus: Prometheus) -> None:
    labels = ", ".join(f'{name}="{value}"' for name, value in plodder._asdict().items())
    for metric in ("container_cpu_usage_seconds_total", "container_memory_working_set_bytes"):
        series = f"{metric}{{{labels}}}"
        wait_for(lambda: bool(prometheus.query(series)), what=series, timeout=90)  # noqa: B023
        (found,) = prometheus.query(series)
        assert float(found["value"][1]) > 0
        assert found["metric"]["node"] == "localhost"


def test_node_keeps_pods_running_when_the_api_server_crashes(
    node_cluster: Cluster, pod: Callable[[], dict[str, Any]]
) -> None:
    before = _status(pod())["containerID"]
    node_cluster.kill_apiserver()
    node_cluster.start_apiserver()
    assert _status(pod())["containerID"] == before
