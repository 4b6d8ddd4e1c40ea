"""With metrics-server alone, on a real node: a first answer, and it is said how little it rests on."""

import json

import pytest

from harness.busyboxes import plods, size, template, workload
from harness.cluster import Cluster
from harness.process import wait_for
from trimtab.cli import run


def test_metrics_server_alone_gives_a_first_answer_of_low_confidence(
    node_cluster: Cluster, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = template(plods(), app="plodder", size=size("1", "512Mi"))
    made = workload("Deployment", "plodder", pod, policy="none")
    node_cluster.call("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", made)
    metrics = f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods"
    wait_for(lambda: bool(node_cluster.call("GET", metrics)["items"]), what="metrics of the pod", timeout=120)
    assert run(["scan", "--kubeconfig", str(node_cluster.kubeconfig), "-n", namespace, "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["clusters"]
    assert found["source"].startswith("metrics-server alone: one look at the present, low confidence")
    (plodder,) = found["workloads"]
    assert plodder["confidence"] == "low"
    (container,) = plodder["containers"]
    assert container["recommended"]["requests"] != {"cpu": "1", "memory": "512Mi"}
    assert 0 < container["used"]["bytes"] < 512 * 2**20
