"""A namespace user's VerticalPodAutoscaler must not smuggle objects into what an administrator pipes to kubectl."""

import pytest
import yaml

from harness.cluster.cluster import Cluster
from trimtab.cli import run

CLUSTER_ADMIN = """x
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: tenant-is-admin}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: User, name: tenant, apiGroup: rbac.authorization.k8s.io}]
#"""
CLEAR_SCREEN = "\x1b[2J"


@pytest.mark.parametrize("line_break", ["\n", "\r", "\r\n", "\x85", "\u2028", "\u2029"])
def test_import_vpa_prints_no_document_from_a_recommender_name(
    cluster: Cluster, vpa_kinds: None, namespace: str, line_break: str, capsys: pytest.CaptureFixture[str]
) -> None:
    container = {"name": "app", "image": "app:1"}
    labels = {"app": "web"}
    recommender = CLUSTER_ADMIN.replace("\n", line_break) + CLEAR_SCREEN
    objects = [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "labels": labels},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        },
        {
            "apiVersion": "autoscaling.k8s.io/v1",
            "kind": "VerticalPodAutoscaler",
            "metadata": {"name": "web"},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "recommenders": [{"name": recommender}],
            },
        },
    ]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=yaml.safe_dump_all(objects))
    for output in ("yaml", "table"):
        options = ["--kubeconfig", str(cluster.kubeconfig), "-n", namespace, "--output", output]
        assert run(["import", "vpa", *options]) == 0
        printed, messages = capsys.readouterr()
        assert CLEAR_SCREEN not in printed + messages
        if output == "yaml":
            assert [each["kind"] for each in yaml.safe_load_all(printed)] == ["OptimizationPolicy"]
            assert len(messages.splitlines()) == 1
