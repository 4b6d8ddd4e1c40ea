"""The chart with watchNamespaces: an operator with Roles only works in its namespaces, and is refused nothing."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cluster.cluster import Cluster
from harness.cluster.namespaces import make_namespace
from harness.faults.faultproxy import FaultProxy
from harness.peers.helm import Helm, HelmError
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import Client, Object
from trimtab.kube.rest.resources import DEPLOYMENTS, OPTIMIZATION_POLICIES
from trimtab.operator.app import OperatorApp
from trimtab.operator.config.reloader import ConfigReloader

POLICY = {
    "apiVersion": OPTIMIZATION_POLICIES.api_version,
    "kind": OPTIMIZATION_POLICIES.kind,
    "metadata": {"name": "p"},
}
SIZE = {"requests": {"cpu": "200m", "memory": "64Mi"}}
WEB = {
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 0,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "web", "resources": SIZE}]},
        },
    },
}


class Installation:
    """The chart in a namespace of its own, which watches two others, beside one that it does not."""

    def __init__(self, cluster: Cluster) -> None:
        self.name = f"scoped-{secrets.token_hex(4)}"
        self.watched = [f"{self.name}-a", f"{self.name}-b"]
        self.other = f"{self.name}-c"
        self.cluster = cluster
        self.helm = Helm(cluster, self.name)

    @property
    def settings(self) -> str:
        return str(
            self.cluster.call("GET", f"/api/v1/namespaces/{self.name}/configmaps/trimtab-operator")["data"][
                "config.yaml"
            ]
        )

    def account(self, proxy: FaultProxy) -> Path:
        """Return a kubeconfig by which one is the operator of the chart, seen by the proxy."""
        kubeconfig: dict[str, Any] = yaml.safe_load(proxy.kubeconfig.read_text())
        name = f"system:serviceaccount:{self.name}:trimtab-operator"
        kubeconfig["users"][0]["user"] |= {"as": name}
        proxy.kubeconfig.write_text(yaml.safe_dump(kubeconfig))
        return proxy.kubeconfig


@pytest.fixture
def installation(cluster: Cluster, kinds: None, vpa_kinds: None) -> Iterator[Installation]:
    found = Installation(cluster)
    for namespace in (found.name, *found.watched, found.other):
        make_namespace(cluster, namespace)
        # At equal weights the policy of the operator's own namespace would select everything.
        weight = 50 if namespace == found.name else 100
        policy = POLICY | {"spec": {"mode": "Recommend", "weight": weight}}
        cluster.call("POST", OPTIMIZATION_POLICIES.path(namespace=namespace), policy)
        cluster.call("POST", DEPLOYMENTS.path(namespace=namespace), WEB)
    found.helm.install(
        "crds.install=false",
        "operator.replicas=1",
        "operator.config.metricsSource.provider=metrics-server",
        f"operator.config.watchNamespaces={{{','.join(found.watched)}}}",
    )
    yield found
    with suppress(HelmError):
        found.helm.uninstall()
    for namespace in (found.name, *found.watched, found.other):
        cluster.call("DELETE", f"/api/v1/namespaces/{namespace}")


@asynccontextmanager
async def leading(installation: Installation, proxy: FaultProxy, folder: Path) -> AsyncIterator[OperatorApp]:
    """Run the operator as the chart's account, with the chart's configuration."""
    file = folder / "config.yaml"
    file.write_text(installation.settings)
    flags = [
        f"store.url={folder / 'trimtab.db'}",
        "address=127.0.0.1:0",
        "leaderElection.retryPeriod=500ms",
        "learning.step=1m",
    ]
    app = OperatorApp(
        load_connection(kubeconfig=installation.account(proxy)),
        ConfigReloader(file, environment={}, flags=flags),
        in_pod=True,
    )
    running = asyncio.create_task(app.run())
    try:
        yield app
    finally:
        running.cancel()
        await running


async def status_of(client: Client, namespace: str) -> Object:
    found = await client.get(OPTIMIZATION_POLICIES, "p", namespace=namespace)
    status: Object = found.get("status") or {}
    return status


def conditions(status: Object) -> dict[str, Object]:
    return {each["type"]: each for each in status.get("conditions", ())}


async def wait_for_condition(client: Client, namespace: str, kind: str) -> Object:
    """Wait until the policy of a namespace has a condition, and return its status."""
    async with asyncio.timeout(60):
        while kind not in conditions(status := await status_of(client, namespace)):
            await asyncio.sleep(0.2)
        return status


async def test_chart_with_watch_namespaces_needs_no_cluster_role(
    installation: Installation, client: Client, fault_proxy: FaultProxy, tmp_path: Path
) -> None:
    rendered = installation.helm.render(
        "crds.install=false", f"operator.config.watchNamespaces={{{','.join(installation.watched)}}}"
    )
    roles = {each["kind"] for each in rendered}
    assert not {kind for kind in roles if kind.startswith(("Cluster", "Validating", "Mutating"))}
    async with leading(installation, fault_proxy, tmp_path):
        await wait_for_condition(client, installation.name, "Ready")
        found = {each: await wait_for_condition(client, each, "Ready") for each in installation.watched}
    assert {name: each["counts"]["monitored"] for name, each in found.items()} == dict.fromkeys(
        installation.watched, 1
    )
    assert await status_of(client, installation.other) == {}
    assert [asked.path for asked, code in fault_proxy.answered if code == 403] == []


async def test_missing_rights_in_one_namespace_leave_the_others_alone(
    installation: Installation, client: Client, fault_proxy: FaultProxy, tmp_path: Path
) -> None:
    granted, lost = installation.watched
    installation.cluster.kubectl("delete", "rolebinding", "trimtab-operator-watched", "-n", lost)
    async with leading(installation, fault_proxy, tmp_path):
        status = await wait_for_condition(client, granted, "PermissionsMissing")
    missing = conditions(status)["PermissionsMissing"]
    assert missing["status"] == "True"
    assert f"pods in namespace {lost}" in missing["message"]
    assert granted not in missing["message"]
    assert status["counts"]["monitored"] == 1
    assert await status_of(client, lost) == {}


async def test_policy_of_elsewhere_sizes_nothing_where_policies_cannot_be_read(
    installation: Installation, client: Client, fault_proxy: FaultProxy, tmp_path: Path
) -> None:
    """The policy of that namespace comes first, and might have the mode Disabled."""
    granted, lost = installation.watched
    role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{lost}/roles/trimtab-operator-watched"
    found = installation.cluster.call("GET", role)
    for rule in found["rules"]:
        rule["resources"] = [each for each in rule["resources"] if each != OPTIMIZATION_POLICIES.plural]
    found["rules"] = [rule for rule in found["rules"] if rule["resources"]]
    installation.cluster.call("PUT", role, found)
    async with leading(installation, fault_proxy, tmp_path):
        async with asyncio.timeout(60):
            while not (listed := (await status_of(client, installation.name)).get("workloads")):
                await asyncio.sleep(0.2)
        status = await wait_for_condition(client, granted, "Ready")
    (web,) = listed
    assert web["namespace"] == lost
    assert f'in the namespace "{lost}"' in web["reason"]
    assert OPTIMIZATION_POLICIES.plural in web["reason"]
    assert [each["namespace"] for each in status["workloads"]] == [granted]
    assert "cannot be read" not in str(status["workloads"])
