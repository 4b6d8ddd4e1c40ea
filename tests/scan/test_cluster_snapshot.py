"""Test the operator's configuration in a snapshot."""

import secrets
from collections.abc import Iterator

import pytest

from harness.cluster.port import ApiServer
from trimtab.kube.auth import load_connection
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.client import Client
from trimtab.scan.cluster_snapshot import ClusterSnapshot, take_snapshot

CONFIG = """
metricsSource: {provider: our-source, settings: {step: 5s}}
additionalMetricsSources: [{name: other, provider: our-other-source}]
learning: {step: 5s, history: 120h}
intents: {planner: our-planner}
defaultPolicy: {mode: Recommend}
limits: {excludedNamespaces: [bank]}
prices: {currency: €}
"""


@pytest.fixture
def home(cluster: ApiServer) -> Iterator[str]:
    """A namespace for an operator, in a cluster with its kinds."""
    cluster.learn()
    name = f"home-{secrets.token_hex(4)}"
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    cluster.call("DELETE", f"/api/v1/namespaces/{name}")


async def snapshot(cluster: ApiServer, home: str) -> ClusterSnapshot:
    async with Client(load_connection(kubeconfig=cluster.kubeconfig)) as client:
        return await take_snapshot(client, operator_namespace=home)


async def test_snapshot_without_the_operators_configuration_says_so(cluster: ApiServer, home: str) -> None:
    found = await snapshot(cluster, home)
    assert found.errors_by_resource == {
        "operator configuration": f"not found in namespace {home}; name its namespace with --home"
    }
    assert found.config.namespace == home


async def test_snapshot_reads_a_configuration_with_plugins_of_the_operators_image(
    cluster: ApiServer, home: str
) -> None:
    body = {"metadata": {"name": "trimtab-operator"}, "data": {"config.yaml": CONFIG}}
    cluster.call("POST", f"/api/v1/namespaces/{home}/configmaps", body)
    found = await snapshot(cluster, home)
    assert found.errors_by_resource == {}
    assert found.config.default_policy is not None
    assert found.config.limits.excluded_namespaces == ("bank",)
    assert found.config.prices.currency == "€"
    assert found.config.learning.history.seconds == 5 * 86400


async def test_snapshot_knows_the_emergency_stop(cluster: ApiServer, home: str) -> None:
    configs = f"/api/v1/namespaces/{home}/configmaps"
    cluster.call("POST", configs, {"metadata": {"name": "trimtab-operator"}, "data": {"config.yaml": "{}"}})
    assert (await snapshot(cluster, home)).config.freeze_reason == ""
    stop = {"metadata": {"name": "trimtab-stop"}, "data": {"by": "ann", "reason": "checkout is slow"}}
    cluster.call("POST", configs, stop)
    found = await snapshot(cluster, home)
    assert found.errors_by_resource == {}
    assert "stopped by ann" in found.config.freeze_reason


async def test_snapshot_lists_the_intents(cluster: ApiServer, home: str) -> None:
    intent = {
        "apiVersion": "trimtab.io/v1alpha1",
        "kind": "Intent",
        "metadata": {"name": "fast"},
        "spec": {
            "targetRef": {"kind": "Deployment", "name": "web"},
            "objectives": [{"name": "p99", "value": 20, "measuredBy": "p99"}],
        },
    }
    cluster.call("POST", f"/apis/trimtab.io/v1alpha1/namespaces/{home}/intents", intent)
    found = await snapshot(cluster, home)
    assert found.intents
    assert str(found.intents.controlling_intent(WorkloadKey("Deployment", home, "web"))) == f"{home}/fast"
