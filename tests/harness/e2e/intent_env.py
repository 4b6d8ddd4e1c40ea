"""Run the production Intent controller on a namespace of a real API server.

The test runs the cycles, and sets the measured KPIs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.builders.objects import pod_status
from harness.e2e.informer_probe import HASTY, eventually
from harness.e2e.intent_loop import CurrentFeatures, FixedSafeSizes
from trimtab.actuation.kube_cluster import KubeCluster
from trimtab.intents.kpi.measurement import KpiReading, unknown_reading
from trimtab.intents.kpi.query import CPU_PODS, KpiQuery
from trimtab.intents.plugins.registry import PluginRegistry
from trimtab.kube.cache.informer_set import InformerSet
from trimtab.kube.errors import NotFound
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.client import Client, Object, PatchType
from trimtab.kube.rest.resources import DEPLOYMENTS, EVENTS, INTENTS, KPI_PROFILES, PODS
from trimtab.kube.runtime.event_recorder import EventRecorder
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intents.controller import IntentController
from trimtab.operator.metrics import Metrics
from trimtab.operator.wiring import FixedConfig, Ports, build_operator
from trimtab.store import Store

ALL_PODS = 1000.0
"""The answer to the number of pods with samples: never fewer than exist."""
START = 1_700_000_000.0
LATENCY = 'p99{namespace="$namespace",app="$name"}[1m]'


@dataclass
class RecordedKpiClient:
    """Answers each query with the value of the word of `answers` that it contains."""

    answers: dict[str, float] = field(default_factory=dict)

    async def measure(self, queries: Iterable[KpiQuery], *, at: float) -> dict[KpiQuery, KpiReading]:
        return {query: self._read(query) for query in queries}

    def _read(self, query: KpiQuery) -> KpiReading:
        for word, value in self.answers.items():
            if word in query.promql:
                return KpiReading.from_value(ALL_PODS if query.quantity == CPU_PODS else value)
        return unknown_reading("the query returns nothing")


@dataclass
class IntentEnv:
    """One namespace with the controller of its Intents."""

    client: Client
    namespace: str
    folder: Path
    kpis: RecordedKpiClient = field(default_factory=RecordedKpiClient)
    metrics: Metrics = field(default_factory=Metrics)
    registry: PluginRegistry = field(default_factory=PluginRegistry)
    settings: dict[str, Any] = field(default_factory=dict)
    extra_config: dict[str, Any] = field(default_factory=dict)
    now: float = START
    store: str = ""
    may_write: Callable[[], bool] = lambda: True

    @property
    def web(self) -> WorkloadKey:
        return WorkloadKey("Deployment", self.namespace, "web")

    def get_web(self) -> Workload:
        """Return the workload from the cache."""
        found = self.cluster_state.get(self.web)
        assert found is not None
        return found

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
    async def start_controller(self) -> AsyncIterator[IntentController]:
        """Start the controller; the test runs its cycles."""
        config = OperatorConfig.model_validate({"intents": self.settings, **self.extra_config})
        events = EventRecorder(
            self.client, component="trimtab.io/test", instance="test", now=lambda: datetime.now(UTC)
        )
        async with Store.open(self.store or self.folder / "trimtab.db") as store:
            operator = build_operator(
                Ports(
                    informers=InformerSet(self.client, discovery_interval=0.5, timeouts=HASTY),
                    objects=self.client,
                    cluster=lambda kinds: KubeCluster(self.client, events, kinds=kinds),
                    features=CurrentFeatures(),
                    events=events,
                    sources={},
                    store=store,
                    config=FixedConfig(config),
                    metrics=self.metrics,
                    plugin_registry=self.registry,
                    kpis=self.kpis,
                    safe_sizes=FixedSafeSizes(),
                )
            )
            tasks = [asyncio.create_task(each) for each in (operator.cluster_state.run(), events.run())]
            try:
                await operator.cluster_state.wait_synced(timeout=60)
                self.cluster_state, self.intent_index = operator.cluster_state, operator.intent_index
                controllers = operator.build_controllers(may_write=self.may_write, enqueue=lambda _: None)
                yield controllers.intent_controller
                await controllers.effect_learner.flush()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def run_cycles(self, loop: IntentController, count: int = 1, *, every: float = 15.0) -> Object:
        """Run cycles and return the status of the Intent afterwards."""
        for _ in range(count):
            self.now += every
            await loop.run_once(self.now)
        return await self.status()

    async def make_pods_ready(self) -> None:
        """Report each pod as running with its requests, as a kubelet would, until the caches have it."""

        async def all_ready() -> bool:
            found = await self.client.list_objects(PODS, namespace=self.namespace)
            wanted = await self.client.get(DEPLOYMENTS, "web", namespace=self.namespace)
            for pod in found:
                body = {"status": pod_status(pod)}
                name, kind = pod["metadata"]["name"], PatchType.STRATEGIC
                with suppress(NotFound):  # the pod was deleted after the list
                    await self.client.patch(
                        PODS, name, body, type=kind, namespace=self.namespace, subresource="status"
                    )
            seen = self.cluster_state.get(self.web)
            there = self.cluster_state.list_pods(seen) if seen else []
            return bool(
                seen
                and seen.is_spec_observed
                and seen.replicas == wanted["spec"]["replicas"] == len(found) == len(there)
                and all(pod.ready for pod in there)
            )

        async with asyncio.timeout(60):
            while not await all_ready():
                await asyncio.sleep(0.1)

    async def wait_for_intents(self, count: int = 1) -> None:
        await eventually(
            lambda: (
                len(self.intent_index.intents.in_namespace(self.namespace)) == count
                and self.intent_index.profiles.get("p99", self.namespace) is not None
            ),
            what="the Intents are in the cache",
        )

    async def status(self, name: str = "web") -> Object:
        found = await self.client.get(INTENTS, name, namespace=self.namespace)
        return dict(found.get("status") or {})

    async def replicas(self) -> int:
        found = await self.client.get(DEPLOYMENTS, "web", namespace=self.namespace)
        return int(found["spec"]["replicas"])

    async def list_events(self) -> list[tuple[str, str]]:
        found = await self.client.list_objects(EVENTS, namespace=self.namespace)
        return [(each["reason"], each["note"]) for each in found if each["regarding"]["kind"] == "Intent"]
