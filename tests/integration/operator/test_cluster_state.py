"""The catalog against the real API server: what is there, whose it is, and who is to be looked at again."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from prometheus_client import REGISTRY

from harness.builders.objects import pod, rollout_kind
from harness.cluster.cluster import Cluster
from harness.e2e.informer_probe import HASTY, eventually
from trimtab.kube.auth import load_connection
from trimtab.kube.cache.informer_set import InformerSet
from trimtab.kube.errors import NotFound
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.client import Client, Object, PatchType
from trimtab.kube.rest.resources import (
    CRON_JOBS,
    DEPLOYMENTS,
    HPAS,
    JOBS,
    LIMIT_RANGES,
    NAMESPACES,
    OPTIMIZATION_POLICIES,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    Resource,
)
from trimtab.kube.rest.retry import RateLimiter
from trimtab.operator.cluster_state import ClusterState

HOME = "trimtab-system"
CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)


@dataclass
class Watcher:
    """A running cluster state and the keys that it enqueued."""

    catalog: ClusterState
    enqueued: set[WorkloadKey] = field(default_factory=set)

    async def hears_of(self, *keys: WorkloadKey) -> None:
        await eventually(lambda: self.enqueued >= set(keys), what=f"{keys} enqueued")
        self.enqueued.clear()


@asynccontextmanager
async def watching(client: Client, *, timeout: float = 60.0) -> AsyncIterator[Watcher]:
    enqueued: set[WorkloadKey] = set()
    catalog = ClusterState(
        InformerSet(client, discovery_interval=0.2, timeouts=HASTY),
        operator_namespace=HOME,
        enqueue=enqueued.add,
    )
    running = asyncio.create_task(catalog.run())
    try:
        await catalog.wait_synced(timeout=timeout)
        yield Watcher(catalog, enqueued)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def watcher(client: Client, kinds: None) -> AsyncIterator[Watcher]:
    async with watching(client) as watcher:
        yield watcher


def deployment(name: str, *, replicas: int = 0) -> Object:
    labels = {"app": name}
    containers = [{"name": "web", "image": "web", "resources": {"requests": {"cpu": "1"}}}]
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    }


def names(found: list[WorkloadKey]) -> set[tuple[str, str]]:
    return {(key.kind, key.name) for key in found}


async def test_pods_are_found_by_the_workload_at_the_top_of_their_owners(
    client: Client, watcher: Watcher, namespace: str
) -> None:
    catalog = watcher.catalog
    await client.create(DEPLOYMENTS, deployment("web", replicas=2), namespace=namespace)
    web = WorkloadKey("Deployment", namespace, "web")

    def has_pods() -> bool:
        found = catalog.get(web)
        return found is not None and len(catalog.list_pods(found)) == 2

    await eventually(has_pods, what="both pods are the deployment's")
    await watcher.hears_of(web)
    await client.create(REPLICA_SETS, deployment("bare", replicas=1), namespace=namespace)
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "c"}]}}
    cron: Object = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template}}}
    nightly = await client.create(
        CRON_JOBS, {"metadata": {"name": "nightly"}, "spec": cron}, namespace=namespace
    )
    owner = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "name": "nightly",
        "uid": nightly["metadata"]["uid"],
        "controller": True,
    }
    run = {"metadata": {"name": "nightly-1", "ownerReferences": [owner]}, "spec": {"template": template}}
    await client.create(JOBS, run, namespace=namespace)
    await client.create(PODS, pod("alone", namespace=namespace, owned=False), namespace=namespace)
    keys = [
        WorkloadKey(kind, namespace, name) for kind, name in (("ReplicaSet", "bare"), ("CronJob", "nightly"))
    ]

    def each_has_a_pod() -> bool:
        found = [catalog.get(key) for key in keys]
        return all(one is not None and len(catalog.list_pods(one)) == 1 for one in found)

    await eventually(each_has_a_pod, what="a pod each")
    await watcher.hears_of(*keys)
    tops = [found.key for found in catalog.list_workloads(namespace)]
    assert names(tops) == {("Deployment", "web"), ("ReplicaSet", "bare"), ("CronJob", "nightly")}
    await eventually(lambda: len(catalog.pods.in_namespace(namespace)) == 5, what="all pods")
    owners = {one.name: catalog.find_workload(one) for one in catalog.pods.in_namespace(namespace)}
    assert owners.pop("alone") is None
    assert names([one.key for one in owners.values() if one]) == names(tops)
    resolved = catalog.build_owner_index()
    assert all(one and resolved.find_workload(namespace, name) == one.key for name, one in owners.items())
    every, own = (
        REGISTRY.get_sample_value("trimtab_informer_records", {"resource": name}) or 0
        for name in ("replicasets.apps", "replicasets.apps on their own")
    )
    assert every > own > 0, "two informers are counted one by one"


async def test_cluster_state_enqueues_a_workload_when_what_affects_it_changes(
    client: Client, watcher: Watcher, namespace: str
) -> None:
    catalog = watcher.catalog
    web, other = (WorkloadKey("Deployment", namespace, name) for name in ("web", "other"))
    for key in (web, other):
        await client.create(DEPLOYMENTS, deployment(key.name), namespace=namespace)
    await watcher.hears_of(web, other)
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
    hpa = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 9,
        "metrics": [{"type": "Resource", "resource": cpu}],
    }
    await client.create(HPAS, {"metadata": {"name": "web"}, "spec": hpa}, namespace=namespace)
    await watcher.hears_of(web)  # perhaps of what the controllers wrote
    found = catalog.get(web)
    assert found is not None
    await eventually(lambda: bool(list(catalog.list_hpas(found))), what="the autoscaler")
    (scaler,) = catalog.list_hpas(found)
    assert (scaler.min_replicas, scaler.max_replicas) == (1, 9)
    assert [(one.resource, one.target) for one in scaler.utilization_targets] == [("cpu", 70)]

    limits = [{"type": "Container", "min": {"cpu": "50m"}, "max": {"memory": "1Gi"}}]
    await client.create(
        LIMIT_RANGES, {"metadata": {"name": "some"}, "spec": {"limits": limits}}, namespace=namespace
    )
    await watcher.hears_of(web, other)
    await eventually(lambda: bool(list(catalog.limit_ranges.in_namespace(namespace))), what="the range")
    (limit_range,) = catalog.limit_ranges.in_namespace(namespace)
    assert (limit_range.limits[0].min.cpu, limit_range.limits[0].max.memory) == (50, 1 << 30)

    hard = {"requests.cpu": "4", "limits.memory": "8Gi"}
    await client.create(
        RESOURCE_QUOTAS, {"metadata": {"name": "some"}, "spec": {"hard": hard}}, namespace=namespace
    )
    await eventually(
        lambda: (
            [
                (quota.hard_requests.cpu, quota.hard_limits.memory)
                for quota in catalog.quotas.in_namespace(namespace)
            ]
            == [(4000, 8 << 30)]
        ),
        what="the quota",
    )
    await watcher.hears_of(web, other)

    labels = {"metadata": {"labels": {"team": "shop"}}}
    await client.patch(NAMESPACES, namespace, labels, type=PatchType.MERGE)
    await watcher.hears_of(web, other)
    await client.delete(DEPLOYMENTS, "other", namespace=namespace)
    await eventually(lambda: catalog.get(other) is None, what="gone")
    await watcher.hears_of(other)


async def wait_settled(client: Client, watcher: Watcher, namespace: str, *deployments: str) -> None:
    """Wait until the controllers write no more and every write was enqueued."""

    async def is_seen(name: str) -> bool:
        body = await client.get(DEPLOYMENTS, name, namespace=namespace)
        return bool({"Progressing"} <= {each["type"] for each in body["status"].get("conditions", ())})

    async with asyncio.timeout(60):
        while not all([await is_seen(name) for name in deployments]):
            await asyncio.sleep(0.1)
    await client.create(DEPLOYMENTS, deployment("last"), namespace=namespace)
    await watcher.hears_of(WorkloadKey("Deployment", namespace, "last"))


async def test_cluster_state_enqueues_workloads_that_a_policy_selects_or_selected(
    client: Client, watcher: Watcher, namespace: str
) -> None:
    web, other = (WorkloadKey("Deployment", namespace, name) for name in ("web", "other"))
    for key in (web, other):
        await client.create(DEPLOYMENTS, deployment(key.name), namespace=namespace)
    await wait_settled(client, watcher, namespace, "web", "other")
    only_web = {"selector": {"workloadSelector": {"matchLabels": {"app": "web"}}}}
    policy = {
        "apiVersion": "trimtab.io/v1alpha1",
        "kind": "OptimizationPolicy",
        "metadata": {"name": "some"},
        "spec": only_web,
    }
    await client.create(OPTIMIZATION_POLICIES, policy, namespace=namespace)
    await eventually(lambda: web in watcher.enqueued, what="the selected one enqueued")
    assert other not in watcher.enqueued
    found, unselected = (watcher.catalog.get(key) for key in (web, other))
    assert found is not None
    assert unselected is not None
    (winner,) = watcher.catalog.policy_matcher.match(found)
    assert (winner.namespace, winner.name) == (namespace, "some")
    assert watcher.catalog.policy_matcher.match(unselected) == ()

    watcher.enqueued.clear()
    narrowed = {"spec": {"selector": {"workloadSelector": {"matchLabels": {"app": "other"}}}}}
    await client.patch(OPTIMIZATION_POLICIES, "some", narrowed, type=PatchType.MERGE, namespace=namespace)
    await eventually(
        lambda: watcher.catalog.policy_matcher.match(found) == (), what="it selects this one no more"
    )
    await watcher.hears_of(web, other)


async def created_once_served(client: Client, resource: Resource, body: Object, namespace: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await client.create(resource, body, namespace=namespace)
            except NotFound:
                await asyncio.sleep(0.1)
            else:
                return


async def test_cluster_state_finds_and_forgets_custom_kinds_that_scale(
    client: Client, watcher: Watcher, namespace: str
) -> None:
    group = f"g{secrets.token_hex(4)}.example.com"
    rollouts = Resource(group, "v1", "rollouts", "Rollout")
    web = WorkloadKey(f"Rollout.{group}", namespace, "web")
    await client.create(CRDS, rollout_kind(group))
    named = {"apiVersion": f"{group}/v1", "kind": "Rollout"}
    nonsense = deployment("nonsense")
    nonsense["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "a lot"
    for body in (nonsense, deployment("web", replicas=2)):
        await created_once_served(client, rollouts, {**named, **body}, namespace)
    await watcher.hears_of(web)
    found = watcher.catalog.get(web)
    assert found is not None
    assert found.replicas == 2
    assert found.containers[0].resources.cpu_request == 1000
    assert rollouts in watcher.catalog.workload_kinds()
    await client.delete(CRDS, f"rollouts.{group}")
    await eventually(
        lambda: (
            watcher.catalog.errors_by_resource().get(str(rollouts))
            == "the server does not have this resource"
        ),
        what="gone",
    )
    assert watcher.catalog.get(web) is None
    assert web in watcher.enqueued


@asynccontextmanager
async def restricted_client(
    cluster: Cluster, client: Client, namespace: str, *, without: str
) -> AsyncIterator[Client]:
    """Connect with the rights to read everything but one resource."""
    name = f"reader-{namespace}"
    await client.create(ACCOUNTS, {"metadata": {"name": "reader"}}, namespace=namespace)
    granted = {
        "": ["namespaces", "nodes", "pods", "limitranges", "resourcequotas"],
        "apps": ["deployments", "statefulsets", "daemonsets", "replicasets"],
        "batch": ["jobs", "cronjobs"],
        "autoscaling": ["horizontalpodautoscalers"],
        "trimtab.io": ["optimizationpolicies"],
    }
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": ["list", "watch"]}
        for group, resources in granted.items()
        for resource in resources
        if resource != without
    ]
    await client.create(ROLES, {"metadata": {"name": name}, "rules": rules})
    cluster.kubectl(
        "create", "clusterrolebinding", name, f"--clusterrole={name}", f"--serviceaccount={namespace}:reader"
    )
    token = cluster.kubectl("create", "token", "reader", "-n", namespace).strip()
    config = cluster.directory / f"{name}.kubeconfig"
    base = cluster.kubectl("config", "view", "--raw", "--minify", "-o", "yaml")
    config.write_text(base)
    cluster.kubectl("config", "--kubeconfig", str(config), "set-credentials", "reader", f"--token={token}")
    cluster.kubectl("config", "--kubeconfig", str(config), "set-context", "--current", "--user=reader")
    async with Client(load_connection(kubeconfig=config), rate=RateLimiter(1000, 1000)) as reader:
        yield reader


async def test_cluster_state_reports_a_missing_right_until_it_is_granted(
    cluster: Cluster, client: Client, kinds: None, namespace: str
) -> None:
    async with (
        restricted_client(cluster, client, namespace, without="optimizationpolicies") as reader,
        watching(reader) as watcher,
    ):
        troubles = watcher.catalog.errors_by_resource()
        assert "forbidden" in troubles["optimizationpolicies.trimtab.io"]
        assert "pods" not in troubles
        role = f"reader-{namespace}"
        rule = {
            "apiGroups": ["trimtab.io"],
            "resources": ["optimizationpolicies"],
            "verbs": ["list", "watch"],
        }
        await client.patch(
            ROLES, role, [{"op": "add", "path": "/rules/-", "value": rule}], type=PatchType.JSON
        )
        await eventually(
            lambda: "optimizationpolicies.trimtab.io" not in watcher.catalog.errors_by_resource(),
            what="granted",
        )


async def test_cluster_state_is_never_synced_without_pods(
    cluster: Cluster, client: Client, kinds: None, namespace: str
) -> None:
    async with restricted_client(cluster, client, namespace, without="pods") as reader:
        with pytest.raises(TimeoutError):
            async with watching(reader, timeout=2.0):
                pass
