"""Test a scan of a real node with metrics-server as the only source."""

import json

import pytest

from harness.cluster.cluster import Cluster
from harness.process import wait_for
from trimtab.cli import run
from trimtab.usage.usage import PodContainer


def test_scan_with_metrics_server_only_has_low_confidence(
    node_cluster: Cluster, plodder: PodContainer, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = f"/apis/metrics.k8s.io/v1beta1/namespaces/{plodder.namespace}/pods"
    wait_for(lambda: bool(node_cluster.call("GET", metrics)["items"]), what="metrics of the pod", timeout=120)
    at = ("--kubeconfig", str(node_cluster.kubeconfig), "-n", plodder.namespace)
    assert run(["scan", *at, "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["clusters"]
    assert found["source"].startswith("metrics-server only: a single sample, low confidence")
    (workload,) = found["workloads"]
    assert workload["confidence"] == "low"
    (container,) = workload["containers"]
    details = {line["name"]: line["detail"] for line in container["explanation"]}
    assert details["usage"].startswith("1 sample since")
    assert {"cpu strategy", "memory strategy"} <= details.keys()
    assert container["recommended"]["requests"]["memory"] == "32Mi", (
        "the minimum, which is far more than the container uses"
    )
    assert 0 < container["used"]["bytes"] < 64 * 2**20
