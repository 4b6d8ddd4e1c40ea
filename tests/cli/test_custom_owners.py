"""Workloads that a custom object owns, and ReplicaSets that a Deployment left behind, on an API server."""

import json
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import trimtab.cli._common.scan_options
from harness.cluster.port import ApiServer
from harness.process import wait_for
from trimtab.cli import run
from trimtab.scan.source_selection import SelectedSource
from trimtab.testing import ScriptedSource, steady
from trimtab.usage.usage import PodContainer

GROUP = "owned.example"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD: dict[str, Any] = {
    "metadata": {"name": f"prometheuses.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "prometheuses", "singular": "prometheus", "kind": "Prometheus"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
                "subresources": {
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
                },
            }
        ],
    },
}


def template(name: str) -> dict[str, Any]:
    labels = {"app": name}
    size = {"requests": {"cpu": "4", "memory": "8Gi"}}
    containers = [{"name": "main", "image": "main", "resources": size}]
    return {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
    }


@pytest.fixture(scope="module")
def namespace(cluster: ApiServer) -> Iterator[str]:
    """A StatefulSet of a Prometheus, and a ReplicaSet whose Deployment is gone, with a pod each."""
    name = f"owned-{secrets.token_hex(4)}"
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    cluster.call("POST", CRDS, CRD)
    objects, apps = (f"/apis/{group}/v1/namespaces/{name}" for group in (GROUP, "apps"))
    wait_for(lambda: cluster.has(f"{objects}/prometheuses"), what="the kind to be served")
    body = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Prometheus",
        "metadata": {"name": "k8s"},
        "spec": {"replicas": 1},
    }
    owner = cluster.call("POST", f"{objects}/prometheuses", body)
    reference = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Prometheus",
        "name": "k8s",
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    metadata = {"name": "prometheus-k8s", "ownerReferences": [reference]}
    cluster.call(
        "POST", f"{apps}/statefulsets", {"metadata": metadata, "spec": {**template("p"), "serviceName": "p"}}
    )
    cluster.call("POST", f"{apps}/deployments", {"metadata": {"name": "web"}, "spec": template("web")})
    wait_for(lambda: len(pods(cluster, name)) == 2, what="a pod of each")
    cluster.call("DELETE", f"{apps}/deployments/web?propagationPolicy=Orphan")
    yield name
    cluster.call("DELETE", f"{CRDS}/prometheuses.{GROUP}")
    cluster.call("DELETE", f"/api/v1/namespaces/{name}")


def pods(cluster: ApiServer, namespace: str) -> list[str]:
    found = cluster.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return [each["metadata"]["name"] for each in found]


@pytest.fixture(autouse=True)
def usage(cluster: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both use a tenth of a core and 100 MB."""
    names = [PodContainer(namespace, pod, "main") for pod in pods(cluster, namespace)]

    @asynccontextmanager
    async def open_source(_client: object, **_: object) -> AsyncIterator[SelectedSource]:
        yield SelectedSource(ScriptedSource(steady(0.1, 1e8), *names), "scripted", has_history=True)

    monkeypatch.setattr(trimtab.cli._common.scan_options, "open_source", open_source)


def test_explain_names_the_owner_of_an_owned_workload(
    cluster: ApiServer, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--kubeconfig", str(cluster.kubeconfig)]
    assert run(["explain", f"{namespace}/sts/prometheus-k8s", *options]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"Prometheus.{GROUP} {namespace}/k8s: 1 pod, high confidence")
    assert "CPU of the busiest pod" in out, "its usage is found under the owner's name"
    assert f"prometheus-k8s: belongs to Prometheus.{GROUP} {namespace}/k8s" in err


@pytest.mark.parametrize("command", ["diff", "patch"])
@pytest.mark.parametrize("by_name", [True, False])
def test_diff_and_patch_explain_why_an_owned_workload_is_skipped(
    cluster: ApiServer, namespace: str, capsys: pytest.CaptureFixture[str], command: str, *, by_name: bool
) -> None:
    which = [f"{namespace}/statefulset/prometheus-k8s"] if by_name else ["-n", namespace]
    run([command, *which, "--kubeconfig", str(cluster.kubeconfig)])
    assert (
        f"Prometheus.{GROUP} {namespace}/k8s: skipped: container main: the controller creates StatefulSet "
        f"{namespace}/prometheus-k8s and would undo a change there"
    ) in capsys.readouterr().err


def test_scan_counts_a_replica_set_whose_deployment_is_gone(
    cluster: ApiServer, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["scan", "-n", namespace, "-o", "json", "--kubeconfig", str(cluster.kubeconfig)]) == 0
    (found,) = json.loads(capsys.readouterr().out)["clusters"]
    kinds = sorted(each["kind"].partition(".")[0] for each in found["workloads"])
    assert kinds == ["Prometheus", "ReplicaSet"]
    assert not found["skipped"]
