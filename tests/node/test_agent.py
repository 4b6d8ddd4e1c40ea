"""The agent as a process, on the real API server and with real cgroups of this machine."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.agent import AgentProcess
from harness.cluster import Cluster
from harness.kubepods import Kubepods
from harness.process import wait_for
from trimtab.node.cgroups import QosClass
from trimtab.node.cgroups.knobs import CPU_QUOTA

CRDS = Path(__file__).parents[2] / "deploy" / "crds"
METRIC = "/apis/trimtab.io/v1alpha1/nodemetrics/worker"
POLICY = "/apis/trimtab.io/v1alpha1/nodeqospolicies"
FAST = {
    "metricCollectPolicy": {
        "aggregateDurationSeconds": 10,
        "reportIntervalSeconds": 1,
        "nodeAggregatePolicy": {"durations": ["1m"]},
    }
}


@pytest.fixture
def node(cluster: Cluster) -> str:
    """A node that is only a name; its agent is to report every second."""
    cluster.kubectl("apply", "--server-side", "-f", str(CRDS))
    for plural in ("nodemetrics", "nodeqospolicies"):
        cluster.kubectl("wait", "--for=condition=Established", f"crd/{plural}.trimtab.io")
    kinds = {"/api/v1/nodes": {}, METRIC.rpartition("/")[0]: {"spec": FAST}}
    for path, body in kinds.items():
        if not any(one["metadata"]["name"] == "worker" for one in cluster.call("GET", path)["items"]):
            cluster.call("POST", path, {"metadata": {"name": "worker"}} | _kind(path) | body)
    return "worker"


def _kind(path: str) -> dict[str, str]:
    kinds = {"nodemetrics": "NodeMetric", "nodeqospolicies": "NodeQoSPolicy"}
    kind = kinds.get(path.rpartition("/")[2])
    return {"apiVersion": "trimtab.io/v1alpha1", "kind": kind} if kind else {}


def pod_on(cluster: Cluster, kubepods: Kubepods, namespace: str, name: str, **labels: str) -> str:
    """A best-effort pod that the API server and the cgroups know of; the cgroup of its container."""
    made = cluster.call(
        "POST",
        f"/api/v1/namespaces/{namespace}/pods",
        {
            "metadata": {"name": name, "labels": {key.replace("_", "/"): v for key, v in labels.items()}},
            "spec": {"nodeName": "worker", "containers": [{"name": "main", "image": "busybox"}]},
        },
    )
    _, [container] = kubepods.pod(QosClass.BEST_EFFORT, uid=made["metadata"]["uid"])
    status = {"name": "main", "ready": True, "image": "", "imageID": "", "restartCount": 0}
    status |= {"containerID": f"containerd://{container.rpartition('/')[2]}"}
    status |= {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    cluster.call(
        "PATCH",
        f"/api/v1/namespaces/{namespace}/pods/{name}/status",
        {"status": {"phase": "Running", "containerStatuses": [status]}},
    )
    return container


def status(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.call("GET", METRIC).get("status", {})
    return found


def test_the_agent_reports_what_pods_use_acts_by_a_policy_and_leaves_no_trace(
    cluster: Cluster, namespace: str, kubepods: Kubepods, node: str, tmp_path: Path
) -> None:
    container = pod_on(cluster, kubepods, namespace, "burner")
    kubepods.run(container)
    agent = AgentProcess(cluster, tmp_path, "--cgroup-parent", kubepods.layout.parent, node=node)
    agent.start()
    agent.wait_until(lambda: "ok" in agent.page("/readyz"))
    agent.wait_until(lambda: any(pod["name"] == "burner" for pod in status(cluster).get("podsMetric", [])))
    [pod] = [pod for pod in status(cluster)["podsMetric"] if pod["name"] == "burner"]
    assert pod["namespace"] == namespace
    assert [one["name"] for one in pod["containers"]] == ["main"]
    assert status(cluster)["nodeMetric"]["bestEffortUsage"]["cpu"] != "0"
    assert (agent.counted('trimtab_agent_collector_up{collector="cpu"}')) == 1

    tier = kubepods.hierarchy.cgroup(kubepods.layout.tier(QosClass.BEST_EFFORT))
    before = tier.read(CPU_QUOTA)
    suppress = {"enable": True, "thresholdPercent": 10, "minPercent": 10, "policy": "cfsQuota"}
    cluster.call(
        "POST", POLICY, {"metadata": {"name": "squeeze"}, "spec": {"cpuSuppress": suppress}} | _kind(POLICY)
    )
    try:
        agent.wait_until(lambda: tier.read(CPU_QUOTA) != before)
    finally:
        cluster.call("DELETE", f"{POLICY}/squeeze")
    agent.wait_until(lambda: tier.read(CPU_QUOTA) == before)
    agent.stop()
    assert tier.read(CPU_QUOTA) == before
    assert (agent.state / "series").stat().st_size > 1000


def test_an_agent_that_may_only_read_writes_nothing(
    cluster: Cluster, kubepods: Kubepods, node: str, tmp_path: Path
) -> None:
    tier = kubepods.hierarchy.cgroup(kubepods.layout.tier(QosClass.BEST_EFFORT))
    suppress = {"enable": True, "minPercent": 10, "thresholdPercent": 10, "policy": "cfsQuota"}
    cluster.call(
        "POST", POLICY, {"metadata": {"name": "squeeze"}, "spec": {"cpuSuppress": suppress}} | _kind(POLICY)
    )
    try:
        parent = kubepods.layout.parent
        agent = AgentProcess(cluster, tmp_path, "--cgroup-parent", parent, "--read-only", node=node)
        agent.start()
        agent.wait_until(lambda: (agent.counted("trimtab_agent_rounds_total") or 0) >= 4)
        assert tier.read(CPU_QUOTA) == -1
        agent.stop()
        assert not (agent.state / "journal").exists()
    finally:
        cluster.call("DELETE", f"{POLICY}/squeeze")
    lines = [json.loads(line) for line in agent.log.read_text().splitlines()]
    assert lines[-1]["event"] == "agent.ended"
