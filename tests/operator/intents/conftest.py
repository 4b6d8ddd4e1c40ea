"""A namespace with a workload and an intent, looked after turn by turn; its KPIs are as the test says."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.cluster import Cluster
from harness.informer_probe import HASTY, eventually
from harness.intent_loop import FixedSafeSizes
from harness.objects import node, pod_status
from trimtab.actuation.executor import ChangeExecutor
from trimtab.actuation.kube_cluster import KubeCluster
from trimtab.intents.kpi.client import Vector
from trimtab.intents.plugins.registry import PluginRegistry
from trimtab.kube.cache.informer_set import InformerSet
from trimtab.kube.errors import NotFound
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.client import Client, Object, PatchType
from trimtab.kube.rest.resources import DEPLOYMENTS, EVENTS, INTENTS, KPI_PROFILES, NODES, PODS
from trimtab.kube.runtime.event_recorder import EventRecorder
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intents.controller import IntentController
from trimtab.operator.intents.effect_learner import EffectLearner
from trimtab.operator.intents.endpoints import KpiEndpoints
from trimtab.operator.intents.executor import PlanExecutor
from trimtab.operator.intents.intent_index import IntentIndex
from trimtab.operator.intents.observer import IntentObserver
from trimtab.operator.intents.planning import PlanningService
from trimtab.operator.intents.status_writer import IntentStatusWriter
from trimtab.operator.metrics import Metrics
from trimtab.store import Store

_ASKED = re.compile(r'label_replace\(\n(.*?)\n, "trimtab_kpi", "(\d+)"', re.DOTALL)
ALL_PODS = 1000.0
"""The answer to how many pods have samples: no fewer than there are."""
START = 1_700_000_000.0
LATENCY = 'p99{namespace="$namespace",app="$name"}[1m]'


@dataclass
class Told:
    """In the place of a Prometheus: it says of each query what the test told it, by a word that the query has."""

    says: dict[str, float] = field(default_factory=dict)

    async def vector(self, promql: str, *, at: float) -> Vector:
        asked = [(number, query) for query, number in _ASKED.findall(promql)]
        return [
            ({"trimtab_kpi": number}, ALL_PODS if query.startswith("count(") else value)
            for number, query in asked
            for word, value in self.says.items()
            if word in query
        ]


@dataclass
class Shop:
    """One namespace, and the loop that looks after its intents."""

    client: Client
    namespace: str
    folder: Path
    told: Told = field(default_factory=Told)
    metrics: Metrics = field(default_factory=Metrics)
    registry: PluginRegistry = field(default_factory=PluginRegistry)
    settings: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    now: float = START
    store: str = ""
    may_write: Callable[[], bool] = lambda: True

    @property
    def web(self) -> WorkloadKey:
        return WorkloadKey("Deployment", self.namespace, "web")

    async def write(self, resource: Any, name: str, **spec: Any) -> Object:
        body = {"metadata": {"name": name, "namespace": self.namespace}, "spec": spec}
        return await self.client.apply(resource, body, manager="test", force=True)

    async def write_intent(self, name: str = "web", *, value: float = 0.15, **spec: Any) -> Object:
        objective = {"name": "p99", "value": value, "measuredBy": "p99"}
        return await self.write(INTENTS, name, targetRef={"name": "web"}, objectives=[objective], **spec)

    async def deploy(self, name: str = "web", *, replicas: int = 1, cpu: str = "500m") -> None:
        size = {"requests": {"cpu": cpu, "memory": "64Mi"}, "limits": {"cpu": cpu}}
        container = {"name": name, "image": name, "resources": size}
        await self.write(
            DEPLOYMENTS,
            name,
            replicas=replicas,
            selector={"matchLabels": {"app": name}},
            template={"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
        )
        await self.write(KPI_PROFILES, "p99", type="latency", query=f"max(max_over_time({LATENCY}))")

    @asynccontextmanager
    async def looked_after(self) -> AsyncIterator[IntentController]:
        """The loop, whose turns the test takes."""
        config = OperatorConfig.model_validate({"intents": self.settings, **self.more})
        following = InformerSet(self.client, discovery_interval=0.5, timeouts=HASTY)
        catalog = ClusterState(following, operator_namespace="trimtab-system", enqueue=lambda _: None)
        roll = IntentIndex(following)
        events = EventRecorder(
            self.client, component="trimtab.io/test", instance="test", now=lambda: datetime.now(UTC)
        )
        cluster = KubeCluster(self.client, events, kinds=catalog.workload_kinds)
        endpoints = KpiEndpoints(self.told, max_age=60, timeout=10)
        async with Store.open(self.store or self.folder / "trimtab.db") as store:
            tasks = [asyncio.create_task(each) for each in (catalog.run(), events.run())]
            try:
                await catalog.wait_synced(timeout=60)
                self.catalog, self.roll = catalog, roll
                lessons = EffectLearner(store, cluster="prod", settings=lambda: config.intents)
                yield IntentController(
                    cluster_state=catalog,
                    intent_index=roll,
                    observer=IntentObserver(catalog, roll, endpoints, settings=lambda: config.intents),
                    planning_service=PlanningService(
                        self.registry, settings=lambda: config.intents, metrics=self.metrics
                    ),
                    safe_sizes=FixedSafeSizes(),
                    executor=PlanExecutor(
                        cluster,
                        ChangeExecutor(cluster, may_write=self.may_write),
                        may_write=self.may_write,
                        can_resize_in_place=lambda: True,
                        observation_period=lambda: 1.0,
                    ),
                    effect_learner=lessons,
                    status_writer=IntentStatusWriter(self.client, events, may_write=self.may_write),
                    config=lambda: config,
                    can_resize_in_place=lambda: True,
                    metrics=self.metrics,
                )
                await lessons.flush()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def take(self, loop: IntentController, turns: int = 1, *, every: float = 15.0) -> Object:
        """So many turns; the status of the intent afterwards."""
        for _ in range(turns):
            self.now += every
            await loop.run_once(self.now)
        return await self.status()

    async def pods_run(self) -> None:
        """Report of each pod that it runs with what it asks for, as a kubelet would, until the loop sees it."""

        async def all_ready() -> bool:
            found = await self.client.list_objects(PODS, namespace=self.namespace)
            wanted = await self.client.get(DEPLOYMENTS, "web", namespace=self.namespace)
            for pod in found:
                body = {"status": pod_status(pod)}
                name, kind = pod["metadata"]["name"], PatchType.STRATEGIC
                with suppress(NotFound):  # it has gone since it was listed
                    await self.client.patch(
                        PODS, name, body, type=kind, namespace=self.namespace, subresource="status"
                    )
            seen = self.catalog.get(self.web)
            there = self.catalog.list_pods(seen) if seen else []
            return bool(
                seen
                and seen.is_spec_observed
                and seen.replicas == wanted["spec"]["replicas"] == len(found) == len(there)
                and all(pod.ready for pod in there)
            )

        async with asyncio.timeout(60):
            while not await all_ready():
                await asyncio.sleep(0.1)

    async def intents_known(self, count: int = 1) -> None:
        await eventually(
            lambda: (
                len(self.roll.intents.in_namespace(self.namespace)) == count
                and self.roll.profiles.get("p99", self.namespace) is not None
            ),
            what="the intents are known",
        )

    async def status(self, name: str = "web") -> Object:
        found = await self.client.get(INTENTS, name, namespace=self.namespace)
        return dict(found.get("status") or {})

    async def replicas(self) -> int:
        found = await self.client.get(DEPLOYMENTS, "web", namespace=self.namespace)
        return int(found["spec"]["replicas"])

    async def told_of(self) -> list[tuple[str, str]]:
        found = await self.client.list_objects(EVENTS, namespace=self.namespace)
        return [(each["reason"], each["note"]) for each in found if each["regarding"]["kind"] == "Intent"]


@pytest.fixture
async def shop(
    cluster: Cluster, client: Client, kinds: None, namespace: str, tmp_path: Path
) -> AsyncIterator[Shop]:
    """A shop with a Deployment `web` of one pod, its latency 0.2 s, and no intent yet."""
    machine = node(f"machine-{namespace}")
    await client.create(NODES, machine)
    name = machine["metadata"]["name"]
    await client.patch(NODES, name, {"status": machine["status"]}, type=PatchType.MERGE, subresource="status")
    shop = Shop(client, namespace, tmp_path)
    shop.told.says = {"p99": 0.2, "container_cpu_usage": 0.4, "request_total": 50.0}
    shop.settings = {"actuators": {"scaleOut": {}, "scaleIn": {}}, "coolDown": "60s", "releaseAfter": "60s"}
    await shop.deploy()
    yield shop
    await client.delete(NODES, name)
