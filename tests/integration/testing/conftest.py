"""The real counterparts of the fakes in `trimtab.testing`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Never

import pytest

from harness import UnavailableError
from harness.cluster.cluster import Cluster
from harness.e2e.informer_probe import eventually
from harness.peers.prometheus import Recorded
from lab.simulator.test_namespace_limits import LimitedNamespace
from testing.ports import ClusterUnderTest, InformersUnderTest
from trimtab.actuation.kube_cluster import KubeCluster
from trimtab.actuation.port import ClusterPort
from trimtab.kube.auth import load_connection
from trimtab.kube.cache.informer_set import InformerSet
from trimtab.kube.errors import Forbidden
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.client import Client, Object, PatchType
from trimtab.kube.rest.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    LIMIT_RANGES,
    PODS,
    RESOURCE_QUOTAS,
    Resource,
)
from trimtab.kube.rest.retry import RateLimiter
from trimtab.kube.runtime.event_recorder import EventRecorder
from trimtab.usage.source import PromqlClient, source

AT = 1_700_000_600


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    async with Client(
        load_connection(kubeconfig=cluster.kubeconfig), rate=RateLimiter(per_second=1000, burst=1000)
    ) as client:
        yield client


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    lines = ["# TYPE depth gauge"]
    for queue, value in (("a", 1.0), ("b", 2.0)):
        lines += [f'depth{{queue="{queue}"}} {value} {at}' for at in range(AT - 300, AT + 1, 15)]
    try:
        server = Recorded(tmp_path_factory.mktemp("prometheus"), "\n".join(lines) + "\n")
    except UnavailableError as why:
        pytest.skip(str(why))
    with server:
        yield server


@pytest.fixture
async def promql(recorded: Recorded) -> AsyncIterator[PromqlClient]:
    """Return a client of a server with two series `depth`, of queues a and b: 1 and 2."""
    async with source("prometheus", url=recorded.url) as real:
        assert real.promql is not None
        yield _WithoutNames(real.promql)


@dataclass
class _WithoutNames:
    """Leaves out the names of metrics, which are labels of a real vector."""

    real: PromqlClient

    async def vector(self, promql: str, *, at: float) -> Any:
        found = await self.real.vector(promql, at=at)
        return [({k: v for k, v in labels.items() if k != "__name__"}, value) for labels, value in found]


@dataclass
class _RealClusterUnderTest:
    port: KubeCluster
    key: WorkloadKey
    _client: Client

    async def change_workload(self) -> None:
        await self._change(DEPLOYMENTS, self.key.name)

    async def change_pod(self, pod: Pod) -> None:
        await self._change(PODS, pod.name)

    async def _change(self, resource: Resource, name: str) -> None:
        body = {"metadata": {"labels": {"example.com/changed": "true"}}}
        await self._client.patch(resource, name, body, type=PatchType.MERGE, namespace=self.key.namespace)

    async def workload(self) -> Workload:
        for _ in range(600):
            found = await self.port.get_workload(self.key)
            if found is not None and found.is_spec_observed:
                pods = [pod for pod in await self.port.list_pods(found) if not pod.deleting]
                if len(pods) == found.replicas:
                    return found
            await asyncio.sleep(0.05)
        raise AssertionError(f"{self.key}: its controller makes no pods")


@pytest.fixture
async def cluster_under_test(client: Client, namespace: str) -> ClusterUnderTest:
    resources = {
        "requests": {"cpu": "100m", "memory": "64Mi"},
        "limits": {"cpu": "200m", "memory": "128Mi"},
    }
    deployment = {
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "busybox:1", "resources": resources}]},
            },
        },
    }
    await client.create(DEPLOYMENTS, deployment, namespace=namespace)
    events = EventRecorder(
        client, component="trimtab.io/test", instance="test", now=lambda: datetime.now(UTC)
    )
    return _RealClusterUnderTest(
        KubeCluster(client, events), WorkloadKey("Deployment", namespace, "web"), client
    )


@dataclass
class _RealInformersUnderTest:
    informers: InformerSet
    namespace: str
    _client: Client
    tasks: list[asyncio.Task[Never]] = field(default_factory=list)

    async def create(self, name: str, labels: Mapping[str, str]) -> None:
        self._run()
        body = {"metadata": {"name": name, "labels": dict(labels)}}
        await self._client.create(CONFIG_MAPS, body, namespace=self.namespace)

    async def delete(self, name: str) -> None:
        await self._client.delete(CONFIG_MAPS, name, namespace=self.namespace)

    async def until(self, is_true: Callable[[], bool]) -> None:
        self._run()
        await eventually(is_true, what="the informers have it")

    def _run(self) -> None:
        """Run the informers once the test has named what they watch."""
        if not self.tasks:
            self.tasks.append(asyncio.create_task(self.informers.run()))


@pytest.fixture
async def informers_under_test(client: Client, namespace: str) -> AsyncIterator[InformersUnderTest]:
    made = _RealInformersUnderTest(InformerSet(client), namespace, client)
    yield made
    for task in made.tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@dataclass
class _RealLimitedNamespace:
    cluster: ClusterUnderTest
    client: Client

    @property
    def port(self) -> ClusterPort:
        return self.cluster.port

    @property
    def name(self) -> str:
        return self.cluster.key.namespace

    async def workload(self, *, pods: int = 2) -> Workload:
        found: list[Workload] = []

        async def has_pods() -> bool:
            workload = await self.port.get_workload(self.cluster.key)
            if workload is None or not workload.is_spec_observed:
                return False
            found[:] = [workload]
            present = [pod for pod in await self.port.list_pods(workload) if not pod.deleting]
            return len(present) == pods

        await _eventually(has_pods)
        return found[0]

    async def denied(self) -> None:
        async def is_reported() -> bool:
            events = await self.client.list_objects(EVENTS, namespace=self.name)
            return any(event["reason"] == "FailedCreate" for event in events)

        await _eventually(is_reported)

    async def add_quota(self, hard: Mapping[str, str]) -> None:
        await self.workload()
        body = {"metadata": {"name": "quota"}, "spec": {"hard": dict(hard)}}
        await self.client.create(RESOURCE_QUOTAS, body, namespace=self.name)

        async def is_counted() -> bool:
            quota = await self.client.get(RESOURCE_QUOTAS, "quota", namespace=self.name)
            return set(quota.get("status", {}).get("used", {})) == set(hard)

        await _eventually(is_counted)

    async def add_limit_range(self, limit: Object) -> None:
        body = {"metadata": {"name": "limits"}, "spec": {"limits": [limit]}}
        await self.client.create(LIMIT_RANGES, body, namespace=self.name)
        container = {
            "name": "main",
            "image": "busybox:1",
            "resources": {"limits": {"cpu": "1", "memory": "64Gi"}},
        }

        async def is_enforced() -> bool:
            pod = {"metadata": {"name": "probe"}, "spec": {"containers": [container]}}
            try:
                await self.client.create(PODS, pod, namespace=self.name, dry_run=True)
            except Forbidden:
                return True
            return False

        await _eventually(is_enforced)


async def _eventually(is_true: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(600):
        if await is_true():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not happen within 30 s")


@pytest.fixture
async def limited_namespace(cluster_under_test: ClusterUnderTest, client: Client) -> LimitedNamespace:
    return _RealLimitedNamespace(cluster_under_test, client)
