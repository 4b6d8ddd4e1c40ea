"""The operator has exactly the rights that it uses: with those of deploy/ it is refused nothing, and each is needed.

All that it does to a cluster is done here on a real API server as its own service account, behind a proxy that notes
what was asked and what was answered. What is granted and what was used must then be the same.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from harness.builders.objects import node, pod, pod_status
from harness.cluster.account import account, become
from harness.cluster.cluster import Cluster
from harness.e2e.informer_probe import eventually
from harness.faults.faultproxy import FaultProxy
from harness.faults.faults import Asked, status
from trimtab.actuation.kube_cluster import KubeCluster
from trimtab.kube.auth import load_connection
from trimtab.kube.errors import Conflict
from trimtab.kube.kinds.pods import Resources, pod_projection
from trimtab.kube.kinds.workloads import BUILT_IN, WorkloadKey
from trimtab.kube.rest.client import Client, Object, PatchType
from trimtab.kube.rest.rbac import RBAC_RULES, SYSTEM_NAMESPACE
from trimtab.kube.rest.resources import (
    DEPLOYMENTS,
    INTENTS,
    KPI_PROFILES,
    NODE_QOS_POLICIES,
    NODES,
    OPTIMIZATION_POLICIES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    VPAS,
)
from trimtab.kube.runtime.event_recorder import EventRecorder
from trimtab.operator.app import OperatorApp
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.config.reloader import ConfigReloader
from trimtab.operator.webhook.lifecycle import WebhookLifecycle
from trimtab.usage.errors import UsageError
from trimtab.usage.source import UsageQuery, source

DEPLOY = Path(__file__).parents[3] / "deploy"
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
TEMPLATE: Object = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {
        "containers": [{"name": "web", "image": "web", "resources": {"requests": {"cpu": "200m"}}}],
        "restartPolicy": "Always",
    },
}
ONE_SHOT = {"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}
AVAILABLE = {"name": "availability", "value": 0.9, "measuredBy": "web"}
SELECTED = {"selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}
SPECS = {
    "Deployment": {"replicas": 0, **SELECTED},
    "StatefulSet": {"replicas": 0, "serviceName": "web", **SELECTED},
    "DaemonSet": SELECTED,
    "ReplicaSet": {"replicas": 0, **SELECTED},
    "Job": {"suspend": True, **ONE_SHOT},
    "CronJob": {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": ONE_SHOT}},
}


class Use(NamedTuple):
    """A verb on a resource."""

    group: str
    resource: str
    verb: str


def granted_rights() -> set[Use]:
    return {
        Use(right.group, right.resource, verb) for right in RBAC_RULES["operator"] for verb in right.verbs
    }


def needed_rights(asked: Asked, code: int) -> set[Use]:
    """Return the rights that the server checks for this request; none for requests open to all, such as discovery."""
    group, rest = "", asked.path.removeprefix("/api/v1/").split("/")
    if asked.path.startswith("/apis/"):
        group, _, *rest = asked.path.removeprefix("/apis/").split("/")
    elif not asked.path.startswith("/api/v1/"):
        return set()
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    if not any(rest):
        return set()
    resource, name, subresource = [*rest, "", ""][:3]
    if asked.method == "GET":
        verb = "get" if name else "watch" if asked.is_watch else "list"
    else:
        verb = VERBS[asked.method]
    what = f"{resource}/{subresource}" if subresource else resource
    # To apply what is not there is to create it, for which the server looks at that right too.
    made = {Use(group, what, "create")} if verb == "patch" and code == 201 else set()
    return {Use(group, what, verb), *made}


@pytest.fixture
def deployed(cluster: Cluster, kinds: None, vpa_kinds: None) -> Iterator[None]:
    """The operator's account in the cluster, our kinds and VPA's; the webhooks go with it."""
    with account(cluster, "operator"):
        yield
        cluster.kubectl("delete", "--ignore-not-found", "-f", str(DEPLOY / "operator" / "webhooks.yaml"))


@pytest.fixture
def as_operator(fault_proxy: FaultProxy) -> Path:
    """A kubeconfig by which one is the operator, seen by the proxy."""
    kubeconfig: dict[str, Any] = yaml.safe_load(fault_proxy.kubeconfig.read_text())
    kubeconfig["users"][0]["user"] |= become("operator")
    fault_proxy.kubeconfig.write_text(yaml.safe_dump(kubeconfig))
    return fault_proxy.kubeconfig


@pytest.fixture
async def scene(cluster: Cluster, client: Client, deployed: None, namespace: str) -> AsyncIterator[str]:
    """A namespace with a workload of each kind, a pod on a node, a policy, and a VPA that names us."""
    for resource in BUILT_IN:
        body = {"metadata": {"name": "web"}, "spec": SPECS[resource.kind]}
        await client.create(resource, body, namespace=namespace)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    asked: list[tuple[Any, Object]] = [
        (OPTIMIZATION_POLICIES, {"selector": {}, "mode": "Recommend"}),
        (VPAS, {"targetRef": target, "recommenders": [{"name": "trimtab"}]}),
        (KPI_PROFILES, {"type": "availability"}),
        (INTENTS, {"targetRef": target, "objectives": [AVAILABLE]}),
    ]
    for resource, spec in asked:
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        await client.create(
            resource, {**kind, "metadata": {"name": "web"}, "spec": spec}, namespace=namespace
        )
    machine = node(f"machine-{namespace}")
    await client.create(NODES, machine)
    quality = {"apiVersion": NODE_QOS_POLICIES.api_version, "kind": NODE_QOS_POLICIES.kind}
    await client.create(NODE_QOS_POLICIES, {**quality, "metadata": {"name": namespace}, "spec": {}})
    running = pod("web-0", namespace=namespace, node=machine["metadata"]["name"], owned=False)
    await client.create(PODS, running, namespace=namespace)
    await client.patch(
        PODS,
        "web-0",
        {"status": pod_status(running)},
        type=PatchType.STRATEGIC,
        namespace=namespace,
        subresource="status",
    )
    # Last: from now on no webhook answers for policies.
    cluster.kubectl("apply", "--server-side", "-f", str(DEPLOY / "operator" / "webhooks.yaml"))
    yield namespace
    await client.delete(NODES, machine["metadata"]["name"])
    await client.delete(NODE_QOS_POLICIES, namespace)
    cluster.kubectl(
        "delete",
        "secret",
        OperatorConfig().webhook.secret,
        "--namespace",
        SYSTEM_NAMESPACE,
        "--ignore-not-found",
    )


@asynccontextmanager
async def leading(kubeconfig: Path, folder: Path) -> AsyncIterator[None]:
    """The operator as it runs in a cluster, on a server for usage that it has to find."""
    config = ConfigReloader(
        None,
        environment={},
        flags=[
            f"store.url={folder / 'trimtab.db'}",
            "address=127.0.0.1:0",
            "webhook.address=127.0.0.1:0",
            "leaderElection.retryPeriod=500ms",
        ],
    )
    running = asyncio.create_task(
        OperatorApp(load_connection(kubeconfig=kubeconfig), config, in_pod=True).run()
    )
    try:
        yield
    finally:
        running.cancel()
        await running


async def apply_everything(client: Client, admin: Client, namespace: str) -> None:
    """Requests of actuation for workloads of each kind and for a pod."""
    live = KubeCluster(client, EventRecorder(client, component="test", instance="test", now=_now))
    for resource in BUILT_IN:
        found = await live.get_workload(WorkloadKey(resource.kind, namespace, "web"))
        assert found is not None
        await live.annotate(found, {"trimtab.io/seen": "yes"})
        if resource in {DEPLOYMENTS, STATEFUL_SETS, REPLICA_SETS}:
            await scale(live, found.key)
    wire = pod_projection()
    there = wire.project(await admin.get(PODS, "web-0", namespace=namespace, into=wire.wire_type))
    await live.resize(there, {"web": Resources(300, None, 512 << 20, 512 << 20)})
    resized = wire.project(await admin.get(PODS, "web-0", namespace=namespace, into=wire.wire_type))
    await live.evict(resized)


async def scale(live: KubeCluster, key: WorkloadKey) -> None:
    """To none; its controller may write to it at the same time."""
    while True:
        found = await live.get_workload(key)
        assert found is not None
        with suppress(Conflict):
            await live.scale(found, 0)
            return


async def renew_the_certificate(client: Client) -> None:
    """Requests of the webhook long before its certificate expires."""
    config = OperatorConfig()
    later = _now() + timedelta(seconds=config.webhook.certificate_validity.seconds)
    await WebhookLifecycle(client, config, now=lambda: later).reconcile()


async def ask_for_usage(client: Client) -> None:
    """Requests of usage sources other than the discovered one."""
    for name in ("metrics-server", "nodemetric"):
        async with source(name, client=client) as present:
            with suppress(UsageError):  # there is none here, as the server says of its own accord
                await present.read(UsageQuery.last(60, now=_now().timestamp(), step=60))


def _now() -> datetime:
    return datetime.now(UTC)


async def test_operator_uses_each_right_and_requests_no_other(
    scene: str, client: Client, as_operator: Path, fault_proxy: FaultProxy, tmp_path: Path
) -> None:
    def seen() -> set[Use]:
        return {use for asked, code in fault_proxy.answered for use in needed_rights(asked, code)}

    # An older server cannot stream a list, and is asked for it in pages.
    fault_proxy.fail_next(status(422), count=1000, match=lambda asked: "sendInitialEvents" in asked.query)
    async with Client(load_connection(kubeconfig=as_operator)) as own, leading(as_operator, tmp_path):
        await apply_everything(own, client, scene)
        await ask_for_usage(own)
        await eventually(lambda: Use("", "secrets", "create") in seen(), what="the webhook has a certificate")
        await renew_the_certificate(own)
        await eventually(lambda: granted_rights() <= seen(), what="all rights are used")
    refused = [asked.path for asked, code in fault_proxy.answered if code == 403]
    # In a namespace of another test, which is on its way out, nothing may be made by anyone.
    assert not [path for path in refused if "/namespaces/test-" not in path or scene in path]
    assert seen() == granted_rights()
