"""Test that a custom kind that cannot be listed does not prevent a scan."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from harness.cluster.cluster import Cluster
from harness.faults.faultproxy import FaultProxy
from harness.faults.faults import status
from harness.process import wait_for
from trimtab.kube.auth import load_connection
from trimtab.kube.errors import InternalError
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import DEPLOYMENTS, Resource
from trimtab.kube.rest.retry import RetryPolicy
from trimtab.scan.cluster_snapshot import list_selected_uids, take_snapshot

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NOBODY = {"namespace": "nowhere", "name": "webhook", "path": "/convert"}
GONE = {
    "strategy": "Webhook",
    "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"service": NOBODY}},
}


def version(name: str, *, storage: bool) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": schema,
        "subresources": {"scale": scale},
    }


@pytest.fixture
def brokers(cluster: Cluster, namespace: str) -> Iterator[Resource]:
    """A custom kind that scales, of which there is one object, and whose conversion webhook is gone."""
    group = f"{secrets.token_hex(4)}.example"
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"brokers.{group}"},
        "spec": {
            "group": group,
            "names": {"plural": "brokers", "singular": "broker", "kind": "Broker"},
            "scope": "Namespaced",
            "versions": [version("v1alpha1", storage=True), version("v1", storage=False)],
        },
    }
    cluster.call("POST", CRDS, definition)
    place = f"/apis/{group}/v1alpha1/namespaces/{namespace}/brokers"
    wait_for(lambda: cluster.has(place), what="the kind is served")
    body = {"apiVersion": f"{group}/v1alpha1", "kind": "Broker", "metadata": {"name": "b"}, "spec": {}}
    cluster.call("POST", place, body)
    known = cluster.call("GET", f"{CRDS}/brokers.{group}")
    known["spec"]["conversion"] = GONE
    cluster.call("PUT", f"{CRDS}/brokers.{group}", known)
    listed = f"/apis/{group}/v1/brokers"
    wait_for(lambda: not cluster.has(listed), what="the kind cannot be listed any more")
    yield Resource(group, "v1", "brokers", "Broker")
    cluster.call("DELETE", f"{CRDS}/brokers.{group}")


def deployment(cluster: Cluster, namespace: str) -> None:
    labels = {"app": "web"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": pod}
    body = {"metadata": {"name": "web", "labels": labels}, "spec": spec}
    cluster.call("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", body)


async def test_take_snapshot_reports_custom_kind_that_cannot_be_listed(
    cluster: Cluster, namespace: str, brokers: Resource
) -> None:
    """Helm may remove an operator and leave its CRD."""
    deployment(cluster, namespace)
    connection = load_connection(kubeconfig=cluster.kubeconfig)
    async with Client(connection, retry=RetryPolicy(attempts=1)) as client:
        found = await take_snapshot(client, namespaces=[namespace])
        assert [each.name for each in found.state.list_workloads()] == ["web"]
        assert "conversion webhook" in found.errors_by_resource[str(brokers)]
        kinds = [DEPLOYMENTS, brokers]
        assert len(await list_selected_uids(client, kinds, [namespace], labels="app=web")) == 1


async def test_take_snapshot_fails_if_built_in_kind_cannot_be_listed(
    fault_proxy: FaultProxy, namespace: str
) -> None:
    """Without its Deployments a cluster would look as if there were hardly anything to size."""
    fault_proxy.fail_next(status(500), count=100, match=lambda asked: asked.path.endswith("/deployments"))
    connection = load_connection(kubeconfig=fault_proxy.kubeconfig)
    async with Client(connection, retry=RetryPolicy(attempts=1)) as client:
        with pytest.raises(InternalError):
            await take_snapshot(client, namespaces=[namespace])
