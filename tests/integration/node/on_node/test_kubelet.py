"""The kubelet of the real node as a source: the agent's rights, and pods that match the cgroups."""

import time
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from harness.builders import busybox_workloads as busyboxes
from harness.cluster.account import account
from harness.cluster.cluster import Cluster
from harness.cluster.node import NAME
from trimtab.kube.auth import load_connection
from trimtab.kube.errors import Forbidden
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.rbac import SYSTEM_NAMESPACE
from trimtab.kube.rest.retry import RetryPolicy
from trimtab.node.cgroups import Hierarchy
from trimtab.node.collectors import CollectorManager, build_collectors
from trimtab.node.informer import NodeInformer
from trimtab.node.model import Metric, Tier, container_subject
from trimtab.node.series import SeriesStore


def as_agent(cluster: Cluster, folder: Path) -> Path:
    """A kubeconfig of the kubelet, with a token of the agent's account."""
    tokens = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/serviceaccounts/trimtab-agent/token"
    token = cluster.call("POST", tokens, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    assert cluster.node is not None
    kubelet = {
        "server": f"https://localhost:{cluster.node.kubelet_port}",
        "certificate-authority": str(cluster.ca),
    }
    file = folder / "kubelet"
    file.write_text(
        yaml.safe_dump(
            {
                "current-context": "kubelet",
                "contexts": [{"name": "kubelet", "context": {"cluster": "kubelet", "user": "agent"}}],
                "clusters": [{"name": "kubelet", "cluster": kubelet}],
                "users": [{"name": "agent", "user": {"token": token}}],
            }
        )
    )
    return file


async def test_kubelet_lets_the_agent_list_pods_and_nothing_else(
    node_cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    pod = busyboxes.template(busyboxes.burns(0.5), app="seen", size=busyboxes.size("50m", "16Mi"))
    pod["metadata"] |= {"name": "seen", "labels": {"trimtab.io/qos": "BE"}}
    node_cluster.call("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
    node_cluster.kubectl("wait", "--for=condition=Ready", "pod/seen", "-n", namespace, "--timeout=120s")
    states = NodeInformer(NAME, hierarchy=Hierarchy.detect(Path("/sys/fs/cgroup")))
    series = SeriesStore(now=time.time())
    advisor = CollectorManager(
        build_collectors(states.hierarchy, Path("/proc")), series, registry=CollectorRegistry()
    )
    with account(node_cluster, "agent"):
        connection = load_connection(kubeconfig=str(as_agent(node_cluster, tmp_path)))
        async with Client(connection, retry=RetryPolicy(attempts=1)) as kubelet:
            states.update_from_kubelet(await kubelet.request("GET", "/pods", read=bytes), time.time())
            for path in ("/stats/summary", "/configz", "/logs/"):
                with pytest.raises(Forbidden):
                    await kubelet.request("GET", path, read=bytes)
    [seen] = [one for one in states.view(time.time()).pods if one.name == "seen"]
    assert (seen.namespace, seen.tier) == (namespace, Tier.BE)
    [container] = seen.containers
    assert container.resources.cpu_request == 50
    assert states.hierarchy.cgroup(container.cgroup).exists
    for wait in (1.2, 1.2, 0):
        advisor.collect(states.view(time.time()), time.time())
        time.sleep(wait)  # noqa: ASYNC251 - nothing else runs here, and a rate needs time to pass
    assert (series.latest(container_subject(seen.uid, "main"), Metric.CPU) or 0) > 0.05
    advisor.close()
    states.close()
