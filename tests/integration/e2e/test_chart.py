"""The chart on a real node: operator and agent run from their image, with exactly the chart's rights, mounts and
capabilities.
"""

import json
import os
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness.builders.busybox_workloads import plods, size, template, workload
from harness.cluster.cluster import Cluster
from harness.cluster.node import NAME
from harness.e2e.e2e_env import eventually
from harness.peers.helm import Helm, HelmError
from integration.e2e.trimtab_image import CHART_VALUES, trimtab_image
from trimtab.node.cgroups import UNLIMITED, CgroupLayout, Hierarchy, QosClass
from trimtab.node.cgroups.knobs import CPU_QUOTA

NAMESPACE = "trimtab-chart"
OURS = "/apis/trimtab.io/v1alpha1"
DAEMONS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/trimtab-agent"
POLICY = {
    "apiVersion": "trimtab.io/v1alpha1",
    "kind": "OptimizationPolicy",
    "metadata": {"name": "everything", "namespace": NAMESPACE},
    "spec": {"selector": {"namespaces": {"allow": [NAMESPACE]}}, "reconciliationInterval": "10s"},
}
OFTEN = {
    "apiVersion": "trimtab.io/v1alpha1",
    "kind": "NodeMetric",
    "metadata": {"name": NAME},
    "spec": {"metricCollectPolicy": {"aggregateDurationSeconds": 10, "reportIntervalSeconds": 1}},
}
SQUEEZE = {
    "apiVersion": "trimtab.io/v1alpha1",
    "kind": "NodeQoSPolicy",
    "metadata": {"name": "squeeze"},
    "spec": {"cpuSuppress": {"enable": True, "policy": "cfsQuota", "minPercent": 20}},
}
PERFMON = 38

pytestmark = pytest.mark.timeout(600)  # a node is started and given an image, which takes a busy machine long


@pytest.fixture(scope="module", autouse=True)
def installed(node_cluster: Cluster) -> Iterator[None]:
    """Install operator and agent on the host network: pods cannot reach the API server here."""
    node = node_cluster.add_node()
    with ThreadPoolExecutor() as beside:
        loaded = beside.submit(lambda: node.load(trimtab_image()))
        _prepare(node_cluster)
        loaded.result()
    host, _, served = node_cluster.server.removeprefix("https://").rpartition(":")
    helm = Helm(node_cluster, NAMESPACE)
    server = [
        f"{process}.env[{number}].name=KUBERNETES_SERVICE_{name},{process}.env[{number}].value={value}"
        for process in ("operator", "agent")
        for number, (name, value) in enumerate((("HOST", host), ("PORT", served)))
    ]
    helm.install(
        *CHART_VALUES,
        "operator.config.metricsSource.provider=metrics-server",
        "agent.enabled=true",
        "agent.hostNetwork=true",
        f"agent.args={{--kubelet=https://127.0.0.1:{node.kubelet_port}}}",
        *server,
    )
    yield
    with suppress(HelmError):
        helm.uninstall()
    for made in (f"/api/v1/namespaces/{NAMESPACE}", f"{OURS}/nodemetrics/{NAME}"):
        node_cluster.call("DELETE", made)


def _prepare(cluster: Cluster) -> None:
    """Objects that exist at the start of operator and agent: an interval that is set later applies only after a minute."""
    # Other tests of this cluster bring the kinds too, and Helm takes over nothing that it has not made.
    cluster.learn()
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    idler = template(plods(rest=0.5), app="idler", size=size("100m", "32Mi"))
    for manifest in (POLICY, OFTEN, workload("Deployment", "idler", idler, policy="everything")):
        _apply(cluster, manifest)


def _apply(cluster: Cluster, manifest: dict[str, Any]) -> None:
    flags = ("--server-side", "--force-conflicts", "-n", NAMESPACE)
    cluster.kubectl("apply", *flags, "-f", "-", stdin=json.dumps(manifest))


def _print_log(cluster: Cluster, workload: str) -> None:
    """Print descriptions and logs of pods that are not ready."""
    print(cluster.kubectl("describe", "pods", "-n", NAMESPACE))
    print(cluster.kubectl("logs", "-n", NAMESPACE, workload))


def _capabilities(cluster: Cluster) -> set[int]:
    """Return the capabilities of the agent's process."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io/component=agent"
    [pod] = cluster.call("GET", path)["items"]
    hierarchy = Hierarchy.detect(Path("/sys/fs/cgroup"))
    layout = CgroupLayout.detect(hierarchy)
    [container] = pod["status"]["containerStatuses"]
    cgroup = layout.container_path(
        layout.pod_path(pod["metadata"]["uid"], QosClass.BURSTABLE), container["containerID"]
    )
    pid = (hierarchy.folder(cgroup, "cpu") / "cgroup.procs").read_text().split()[0]
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    assert status["NoNewPrivs"].strip() == "1"
    held = int(status["CapEff"], 16)
    return {number for number in range(64) if held >> number & 1}


def test_operator_runs_from_its_image_and_sizes_a_workload(node_cluster: Cluster) -> None:
    def ready() -> bool:
        return node_cluster.is_so(
            f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/trimtab-operator", "Available"
        )

    def looked_after() -> bool:
        path = f"{OURS}/namespaces/{NAMESPACE}/optimizationpolicies/everything"
        listed = node_cluster.call("GET", path).get("status", {}).get("workloads", [])
        return "idler" in {entry["name"] for entry in listed}

    try:
        eventually(ready, what="the operator to be ready", timeout=120)
    except TimeoutError:
        _print_log(node_cluster, "deploy/trimtab-operator")
        raise
    eventually(looked_after, what="an entry of the workload in the policy's status", timeout=120)


def test_agent_runs_from_its_image_and_restores_on_exit(node_cluster: Cluster) -> None:
    def ready() -> bool:
        """The agent is ready only if the kubelet and the API server answer."""
        return bool(node_cluster.call("GET", DAEMONS)["status"].get("numberReady"))

    def reported() -> bool:
        status = node_cluster.call("GET", f"{OURS}/nodemetrics/{NAME}").get("status", {})
        pods = {(pod["namespace"], pod["name"].rpartition("-")[0]) for pod in status.get("podsMetric", ())}
        return (NAMESPACE, "trimtab-agent") in pods

    def pages() -> dict[str, str]:
        with urllib.request.urlopen("http://127.0.0.1:8081/metrics", timeout=30) as answer:
            return dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines())

    try:
        eventually(ready, what="the agent to be ready", timeout=120)
    except TimeoutError:
        _print_log(node_cluster, "ds/trimtab-agent")
        raise
    assert _capabilities(node_cluster) == {PERFMON}
    eventually(reported, what="a report of what it uses itself", timeout=120)
    up = {
        f'trimtab_agent_collector_up{{collector="{name}"}}' for name in ("cpu", "memory", "node", "run_delay")
    }
    eventually(lambda: {name for name in up if pages().get(name) == "1.0"} == up, what="all to be measured")

    hierarchy = Hierarchy.detect(Path("/sys/fs/cgroup"))
    tier = hierarchy.cgroup(CgroupLayout.detect(hierarchy).qos_path(QosClass.BEST_EFFORT))
    assert tier.read(CPU_QUOTA) == UNLIMITED
    _apply(node_cluster, SQUEEZE)
    whole = 100_000 * (os.cpu_count() or 1)
    try:
        eventually(lambda: 0 < tier.read(CPU_QUOTA) <= whole, what="pods to be squeezed", timeout=120)
    finally:
        node_cluster.call("DELETE", f"{OURS}/nodeqospolicies/squeeze")
    eventually(lambda: tier.read(CPU_QUOTA) == UNLIMITED, what="them to be unthrottled", timeout=120)
