"""`trimtab cleanup` on a real API server: it removes what is ours, leaves what people wrote, and says so."""

import json
from collections.abc import Callable, Iterator

import pytest

from harness.cluster.cluster import Cluster
from harness.cluster.namespaces import fresh_namespace
from trimtab.actuation.change_annotations import (
    APPLIED_ANNOTATION,
    CHANGE_ANNOTATION,
    RECOMMENDATION_ANNOTATION,
)
from trimtab.actuation.hold import HOLD_ANNOTATION
from trimtab.cli import run

Call = Callable[..., tuple[int, str]]


@pytest.fixture
def home(cluster: Cluster) -> Iterator[str]:
    """The namespace in which Trimtab was installed."""
    cluster.learn()
    with fresh_namespace(cluster) as name:
        yield name


@pytest.fixture
def call(cluster: Cluster, home: str, capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*arguments: str) -> tuple[int, str]:
        code = run(["cleanup", "-n", home, "--kubeconfig", str(cluster.kubeconfig), *arguments])
        return code, capsys.readouterr().out

    return call


def apply(cluster: Cluster, *manifests: dict[str, object]) -> None:
    for manifest in manifests:
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))


def leave_behind(cluster: Cluster, home: str) -> None:
    """Write what an operator and people leave in a cluster."""
    pod = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "app", "image": "registry.example/app:1"}]},
    }
    apply(
        cluster,
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": "web",
                "namespace": home,
                "annotations": {
                    APPLIED_ANNOTATION: "{}",
                    CHANGE_ANNOTATION: "{}",
                    RECOMMENDATION_ANNOTATION: "cpu 1",
                    HOLD_ANNOTATION: "true",
                    "team": "shop",
                },
            },
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": pod},
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "trimtab"},
            "webhooks": [],
        },
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "trimtab-operator", "namespace": home},
            "spec": {},
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "trimtab-webhook", "namespace": home},
        },
        {
            "apiVersion": "trimtab.io/v1alpha1",
            "kind": "NodeMetric",
            "metadata": {"name": "gone"},
            "spec": {},
        },
        {
            "apiVersion": "trimtab.io/v1alpha1",
            "kind": "OptimizationPolicy",
            "metadata": {"name": "everything", "namespace": home},
            "spec": {},
        },
    )


def test_cleanup_removes_what_is_ours_and_names_what_stays(cluster: Cluster, home: str, call: Call) -> None:
    leave_behind(cluster, home)
    path = f"/apis/apps/v1/namespaces/{home}/deployments/web"
    before = cluster.call("GET", path)
    code, planned = call("--dry-run")
    assert code == 0
    assert cluster.call("GET", path)["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]

    code, shown = call()
    assert code == 0
    assert [
        line.replace("would remove", "removed") for line in planned.splitlines()[:5]
    ] == shown.splitlines()[:5]
    after = cluster.call("GET", path)
    left = after["metadata"]["annotations"].keys() & {
        APPLIED_ANNOTATION,
        CHANGE_ANNOTATION,
        RECOMMENDATION_ANNOTATION,
    }
    assert not left
    assert after["metadata"]["annotations"]["team"] == "shop"
    assert after["spec"] == before["spec"]
    for gone in (
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/trimtab",
        f"/apis/coordination.k8s.io/v1/namespaces/{home}/leases/trimtab-operator",
        f"/api/v1/namespaces/{home}/secrets/trimtab-webhook",
        "/apis/trimtab.io/v1alpha1/nodemetrics/gone",
    ):
        assert not cluster.has(gone), gone
    assert f"  Deployment {home}/web\n" in shown
    assert f"Deployment {home}/web: annotation {HOLD_ANNOTATION}" in shown
    assert f"OptimizationPolicy {home}/everything" in shown
    assert "next rollout" in shown

    code, again = call()
    assert code == 0
    assert again.startswith("nothing is left to remove")


def test_cleanup_refuses_while_an_operator_runs(cluster: Cluster, home: str, call: Call) -> None:
    labels = {"app.kubernetes.io/name": "trimtab", "app.kubernetes.io/component": "operator"}
    spec = {"containers": [{"name": "operator", "image": "registry.example/trimtab:1"}]}
    apply(
        cluster,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "trimtab-operator-0", "namespace": home, "labels": labels},
            "spec": spec,
        },
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "trimtab-operator", "namespace": home},
            "spec": {},
        },
    )
    code, shown = call()
    assert code == 1
    assert "trimtab-operator-0 still run" in shown
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{home}/leases/trimtab-operator"
    assert cluster.has(lease)
    assert call("--force")[0] == 0
    assert not cluster.has(lease)


def test_cleanup_removes_the_lease_and_secret_of_other_names(cluster: Cluster, home: str, call: Call) -> None:
    metadata = {"namespace": home}
    apply(
        cluster,
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {**metadata, "name": "other"},
            "spec": {},
        },
        {"apiVersion": "v1", "kind": "Secret", "metadata": {**metadata, "name": "own"}},
    )
    assert call("--lease", "other", "--webhook-secret", "own")[0] == 0
    assert not cluster.has(f"/apis/coordination.k8s.io/v1/namespaces/{home}/leases/other")
    assert not cluster.has(f"/api/v1/namespaces/{home}/secrets/own")
