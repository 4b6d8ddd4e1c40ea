"""The agent as a process, on the real API server and with real cgroups of this machine.

It runs with the rights of its manifest and, as root, without any capability.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.builders import fake_proc as still
from harness.builders.busybox_workloads import grows, plods
from harness.cluster.account import account, become
from harness.cluster.cluster import Cluster
from harness.cluster.kubepods import Kubepods
from harness.e2e.agent import AgentProcess, pod_on
from trimtab.kube.kinds.emergency_stop import STOP_NAME
from trimtab.kube.rest.rbac import SYSTEM_NAMESPACE
from trimtab.node.arbiter import KnobRef
from trimtab.node.cgroups import QosClass
from trimtab.node.cgroups.knobs import CPU_QUOTA
from trimtab.node.restore_journal import RestoreJournal, read_boot_id

METRICS = "/apis/trimtab.io/v1alpha1/nodemetrics"
METRIC = f"{METRICS}/worker"
POLICY = "/apis/trimtab.io/v1alpha1/nodeqospolicies"
FAST = {
    "metricCollectPolicy": {
        "aggregateDurationSeconds": 10,
        "reportIntervalSeconds": 1,
        "nodeAggregatePolicy": {"durations": ["1m"]},
    }
}


@pytest.fixture
def node(cluster: Cluster) -> Iterator[str]:
    """A node that is only a name; its agent is to report every second."""
    cluster.learn()
    cluster.call("POST", "/api/v1/nodes", {"metadata": {"name": "worker"}})
    cluster.call("POST", METRICS, _ours("NodeMetric", "worker", FAST))
    yield "worker"
    cluster.call("DELETE", METRIC)
    cluster.call("DELETE", "/api/v1/nodes/worker")


def _ours(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "trimtab.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def run() -> Iterator[Callable[..., AgentProcess]]:
    """Starts an agent, which does not outlive the test."""
    with ExitStack() as stack:

        def start(*arguments: Any, **more: Any) -> AgentProcess:
            agent = AgentProcess(*arguments, **more)
            stack.callback(agent.kill)
            agent.start()
            return agent

        yield start


@pytest.fixture
def as_agent(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig by which one is the agent of our manifests."""
    kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
    kubeconfig["users"][0]["user"] |= become("agent", node="worker")
    with account(cluster, "agent"):
        file = tmp_path / "as-agent"
        file.write_text(yaml.safe_dump(kubeconfig))
        yield file


def status(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = cluster.call("GET", METRIC).get("status", {})
    return found


def test_agent_reports_usage_enforces_policy_and_restores_everything(
    cluster: Cluster,
    namespace: str,
    kubepods: Kubepods,
    node: str,
    as_agent: Path,
    tmp_path: Path,
    run: Callable[..., AgentProcess],
) -> None:
    [container] = pod_on(cluster, kubepods, namespace=namespace, node=node, name="plodder")
    kubepods.run(container, ("/bin/busybox", "sh", "-c", plods()))
    agent = run(
        cluster,
        tmp_path,
        "--cgroup-parent",
        kubepods.layout.parent,
        node=node,
        kubeconfig=as_agent,
    )
    agent.wait_until(lambda: "ok" in agent.page("/readyz"))
    agent.wait_until(lambda: any("containers" in pod for pod in status(cluster).get("podsMetric", [])))
    [pod] = status(cluster)["podsMetric"]
    assert (pod["namespace"], pod["name"]) == (namespace, "plodder")
    assert [one["name"] for one in pod["containers"]] == ["c0"]
    assert status(cluster)["nodeMetric"]["bestEffortUsage"]["cpu"] != "0"
    assert (agent.metric_value('trimtab_agent_collector_up{collector="cpu"}')) == 1

    tier = kubepods.hierarchy.cgroup(kubepods.layout.qos_path(QosClass.BEST_EFFORT))
    before = tier.read(CPU_QUOTA)
    suppress = {"enable": True, "thresholdPercent": 10, "minPercent": 10, "policy": "cfsQuota"}
    cluster.call("POST", POLICY, _ours("NodeQoSPolicy", "squeeze", {"cpuSuppress": suppress}))
    try:
        agent.wait_until(lambda: tier.read(CPU_QUOTA) != before)
        agent.wait_until(lambda: status(cluster).get("qosPolicy") == "squeeze")
    finally:
        cluster.call("DELETE", f"{POLICY}/squeeze")
    agent.wait_until(lambda: tier.read(CPU_QUOTA) == before)
    agent.wait_until(lambda: "qosPolicy" not in status(cluster))


def test_agent_restores_everything_during_an_emergency_stop(
    cluster: Cluster,
    namespace: str,
    kubepods: Kubepods,
    node: str,
    as_agent: Path,
    tmp_path: Path,
    run: Callable[..., AgentProcess],
) -> None:
    [container] = pod_on(cluster, kubepods, namespace=namespace, node=node, name="plodder")
    kubepods.run(container, ("/bin/busybox", "sh", "-c", plods()))
    tier = kubepods.hierarchy.cgroup(kubepods.layout.qos_path(QosClass.BEST_EFFORT))
    before = tier.read(CPU_QUOTA)
    suppress = {"enable": True, "thresholdPercent": 10, "minPercent": 10, "policy": "cfsQuota"}
    cluster.call("POST", POLICY, _ours("NodeQoSPolicy", "squeeze", {"cpuSuppress": suppress}))
    try:
        agent = run(
            cluster, tmp_path, "--cgroup-parent", kubepods.layout.parent, node=node, kubeconfig=as_agent
        )
        agent.wait_until(lambda: tier.read(CPU_QUOTA) != before)
        cluster.kubectl("create", "configmap", STOP_NAME, "-n", SYSTEM_NAMESPACE)
        try:
            agent.wait_until(lambda: tier.read(CPU_QUOTA) == before)
            agent.wait_until(lambda: "qosPolicy" not in status(cluster))
        finally:
            cluster.kubectl("delete", "configmap", STOP_NAME, "-n", SYSTEM_NAMESPACE)
        agent.wait_until(lambda: tier.read(CPU_QUOTA) != before)
    finally:
        cluster.call("DELETE", f"{POLICY}/squeeze")
    agent.stop()
    assert tier.read(CPU_QUOTA) == before
    assert (agent.state / "series").stat().st_size > 1000


def test_agent_evicts_best_effort_pods_within_disruption_budgets(
    cluster: Cluster,
    namespace: str,
    kubepods: Kubepods,
    node: str,
    as_agent: Path,
    tmp_path: Path,
    run: Callable[..., AgentProcess],
) -> None:
    for name in ("kept", "sent"):
        [container] = pod_on(
            cluster, kubepods, namespace=namespace, node=node, name=name, labels={"app": name}
        )
        kubepods.run(container, ("/bin/busybox", "sh", "-c", grows(first=20, most=20, every=1.0)))
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    cluster.call("POST", budgets, {"metadata": {"name": "kept"}, "spec": budget})
    evict = {"enable": True, "thresholdPercent": 70, "lowerPercent": 60, "coolDownSeconds": 1}
    cluster.call("POST", POLICY, _ours("NodeQoSPolicy", "evict", {"memoryEvict": evict}))
    pods = f"/api/v1/namespaces/{namespace}/pods"

    def metric_value(result: str) -> float:
        labels = f'{{result="{result}",strategy="memoryevict"}}'
        return agent.metric_value(f"trimtab_node_evictions_total{labels}") or 0

    def leaving(name: str) -> bool:
        path = f"{pods}/{name}"
        return not cluster.has(path) or "deletionTimestamp" in cluster.call("GET", path)["metadata"]

    try:
        # 75 % of 200 MB are used, 40 MB of it by the two pods, and 30 MB are to be had back.
        proc = still.proc(tmp_path / "proc", memory_kib=(200_000, 50_000))
        where = ("--cgroup-parent", kubepods.layout.parent, "--proc", str(proc))
        agent = run(cluster, tmp_path, *where, node=node, kubeconfig=as_agent)
        agent.wait_until(lambda: metric_value("evicted") >= 1 and metric_value("refused") >= 1, timeout=120)
    finally:
        cluster.call("DELETE", f"{POLICY}/evict")
    assert leaving("sent")
    assert not leaving("kept")


def test_agent_reports_a_missing_node_until_it_exists(
    cluster: Cluster, kubepods: Kubepods, tmp_path: Path, run: Callable[..., AgentProcess]
) -> None:
    cluster.learn()
    try:
        parent = kubepods.layout.parent
        agent = run(cluster, tmp_path, "--cgroup-parent", parent, "--read-only", node="nowhere")
        agent.wait_until(lambda: "the cluster has no Node nowhere; check --node" in agent.log.read_text())
        assert not agent.page("/readyz")
        cluster.call("POST", "/api/v1/nodes", {"metadata": {"name": "nowhere"}})
        agent.wait_until(lambda: agent.page("/readyz").endswith("\nok\n"))
        agent.stop()
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "nodes/nowhere", "nodemetrics/nowhere")


def test_read_only_agent_writes_nothing_and_reports_pending_restores(
    cluster: Cluster, kubepods: Kubepods, node: str, tmp_path: Path, run: Callable[..., AgentProcess]
) -> None:
    tier = kubepods.hierarchy.cgroup(kubepods.layout.qos_path(QosClass.BEST_EFFORT))
    suppress = {"enable": True, "minPercent": 10, "thresholdPercent": 10, "policy": "cfsQuota"}
    cluster.call("POST", POLICY, _ours("NodeQoSPolicy", "squeeze", {"cpuSuppress": suppress}))
    try:
        parent, journal = kubepods.layout.parent, tmp_path / "state" / "journal"
        RestoreJournal(journal, boot=read_boot_id()).record_originals({KnobRef(tier.path, CPU_QUOTA): 50_000})
        before = journal.read_text()
        agent = run(cluster, tmp_path, "--cgroup-parent", parent, "--read-only", node=node)
        agent.wait_until(lambda: (agent.metric_value("trimtab_agent_rounds_total") or 0) >= 4)
        assert tier.read(CPU_QUOTA) == -1
        agent.stop()
        assert journal.read_text() == before
    finally:
        cluster.call("DELETE", f"{POLICY}/squeeze")
    lines = [json.loads(line) for line in agent.log.read_text().splitlines()]
    [left] = [line["knobs"] for line in lines if line["event"] == "agent.restore_pending"]
    assert left == [f"{tier.path} cpu.quota"]
    assert lines[-1]["event"] == "agent.stopped"
