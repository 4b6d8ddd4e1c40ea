"""The examples that people copy do what they say."""

import os
import subprocess
import sys
from pathlib import Path

from harness.builders.objects import node, pod, pod_status
from harness.cluster.cluster import Cluster

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_requested_example_prints_requests_by_namespace(cluster: Cluster, namespace: str) -> None:
    cluster.call("POST", "/api/v1/nodes", node(namespace, cpu="8", memory="32Gi"))
    body = pod("web", namespace=namespace, node=namespace, cpu="1450m", memory="2Gi", owned=False)
    made = cluster.call("POST", f"/api/v1/namespaces/{namespace}/pods", body)
    path = f"/api/v1/namespaces/{namespace}/pods/web/status"
    cluster.call("PUT", path, made | {"status": pod_status(body)})
    try:
        shown = subprocess.run(
            [sys.executable, EXAMPLES / "requested.py"],
            env=os.environ | {"KUBECONFIG": str(cluster.kubeconfig), "COLUMNS": "120"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    finally:
        cluster.call("DELETE", f"/api/v1/nodes/{namespace}")
    (line,) = [line for line in shown.splitlines() if namespace in line]
    # Two containers: 1450m + 50m, and 2Gi + 64Mi.
    assert line.split()[1:3] == ["1", "1.5"]
    assert "2.1" in line
