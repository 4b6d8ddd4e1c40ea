"""The chart on a real node: the operator runs from its image, as an ordinary user, with exactly the chart's rights."""

import json
from collections.abc import Iterator
from contextlib import suppress

import pytest

from harness.busyboxes import plods, size, template, workload
from harness.cluster import Cluster
from harness.estate import eventually
from harness.helm import Helm, Refused
from harness.trimtab_image import TAG, trimtab_image

NAMESPACE = "trimtab-chart"
POLICY = {
    "apiVersion": "trimtab.io/v1alpha1",
    "kind": "OptimizationPolicy",
    "metadata": {"name": "everything", "namespace": NAMESPACE},
    "spec": {"selector": {"namespaces": {"allow": [NAMESPACE]}}, "reconciliationInterval": "10s"},
}


@pytest.fixture
def helm(node_cluster: Cluster) -> Iterator[Helm]:
    node_cluster.add_node().load(trimtab_image())
    helm = Helm(node_cluster, NAMESPACE)
    yield helm
    with suppress(Refused):
        helm.uninstall()
    node_cluster.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}")


def test_the_operator_runs_from_its_image_and_looks_after_a_workload(
    node_cluster: Cluster, helm: Helm
) -> None:
    repository, _, tag = TAG.rpartition(":")
    host, _, port = node_cluster.server.removeprefix("https://").rpartition(":")
    helm.install(
        f"image.repository={repository}",
        f"image.tag={tag}",
        "image.pullPolicy=Never",
        "operator.replicas=1",
        "operator.hostNetwork=true",  # this node has no way from pods to the API server
        f"operator.env[0].name=KUBERNETES_SERVICE_HOST,operator.env[0].value={host}",
        f"operator.env[1].name=KUBERNETES_SERVICE_PORT,operator.env[1].value={port}",
        "operator.config.metricsSource.provider=metrics-server",
        "operator.webhook=false",
    )
    node_cluster.kubectl("wait", "--for=condition=Established", "crd/optimizationpolicies.trimtab.io")
    pod = template(plods(), app="idler", size=size("100m", "32Mi"))
    for manifest in (POLICY, workload("Deployment", "idler", pod, policy="everything")):
        node_cluster.kubectl("apply", "--server-side", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(manifest))

    def ready() -> bool:
        return node_cluster.is_so(
            f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/trimtab-operator", "Available"
        )

    def looked_after() -> bool:
        path = f"/apis/trimtab.io/v1alpha1/namespaces/{NAMESPACE}/optimizationpolicies/everything"
        listed = node_cluster.call("GET", path).get("status", {}).get("workloads", [])
        return "idler" in {entry["name"] for entry in listed}

    try:
        eventually(ready, what="the operator to be ready", timeout=120)
    except TimeoutError:
        print(node_cluster.kubectl("describe", "pods", "-n", NAMESPACE))
        print(node_cluster.kubectl("logs", "-n", NAMESPACE, "deploy/trimtab-operator"))
        raise
    eventually(looked_after, what="the policy to tell of the workload", timeout=120)
