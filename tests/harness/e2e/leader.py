"""Run a leader in the test's process, with scripted usage and a real cluster, and restart it on request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Never

import yaml

from harness.builders.objects import pod_status
from harness.e2e.informer_probe import eventually
from trimtab.actuation.kube_cluster import KubeCluster
from trimtab.kube.cache.informer import WatchTimeouts
from trimtab.kube.cache.informer_set import InformerSet
from trimtab.kube.errors import NotFound
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.capabilities import ServerFeatures
from trimtab.kube.rest.client import Client, Object, PatchType
from trimtab.kube.rest.resources import OPTIMIZATION_POLICIES, PODS
from trimtab.kube.runtime.event_recorder import EventRecorder
from trimtab.operator.config.reloader import ConfigReloader
from trimtab.operator.leader import LeaderSession
from trimtab.operator.metrics import Metrics
from trimtab.operator.wiring import Ports, build_operator
from trimtab.recommender.recommender import DEFAULT_SOURCE
from trimtab.recommender.source_ingester import IngestSchedule
from trimtab.store import Store
from trimtab.testing import Script, ScriptedSource, steady
from trimtab.timing import Backoff
from trimtab.usage.source import Source
from trimtab.usage.usage import PodContainer

BRISK = WatchTimeouts(backoff=Backoff(first=0.05, ceiling=0.2))
STEP = 1.0
PACE = IngestSchedule(step=STEP, backfill_step=60.0, backfill_period=1200.0)
EASY = {
    "strategy": {"name": "percentile", "settings": {"min_samples": 1}},
    "metricsConfig": {"minimumHistory": "1m"},
    "reconciliationInterval": "10s",
    "updateStrategy": {"minInterval": "0s", "canary": {"observation": "1s"}},
}
"""A policy that makes up its mind at once."""


def deployment(name: str = "web", *, replicas: int = 0, cpu: str = "1", memory: str = "512Mi") -> Object:
    labels = {"app": name}
    container = {
        "name": "web",
        "image": "web",
        "resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}},
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


@dataclass
class Office:
    """One namespace, and a leader who looks after it."""

    client: Client
    namespace: str
    folder: Path
    source: ScriptedSource
    others: dict[str, Source[Any]] = field(default_factory=dict)
    """Sources of other names."""
    metrics: Metrics = field(default_factory=Metrics)
    settings: dict[str, Any] = field(default_factory=dict)
    leads: Callable[[], bool] = lambda: True
    intents: bool = False
    """True if the leader controls Intents too."""

    @property
    def web(self) -> WorkloadKey:
        return WorkloadKey("Deployment", self.namespace, "web")

    def configure(self, **settings: Any) -> None:
        """Let the configuration file say this too."""
        self.settings |= settings
        (self.folder / "config.yaml").write_text(yaml.safe_dump(self.settings))

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[LeaderSession]:
        """A term from its begin to its end; what was learned is in the store."""
        self.configure(intents={"enabled": self.intents} | self.settings.get("intents", {}))
        config = ConfigReloader(self.folder / "config.yaml", environment={})
        events = EventRecorder(
            self.client, component="trimtab.io/test", instance="test", now=lambda: datetime.now(UTC)
        )
        async with Store.open(self.folder / "trimtab.db") as store:
            operator = build_operator(
                Ports(
                    informers=InformerSet(self.client, discovery_interval=0.5, timeouts=BRISK),
                    objects=self.client,
                    cluster=lambda kinds: KubeCluster(self.client, events, kinds=kinds),
                    features=ServerFeatures(self.client),
                    events=events,
                    sources={DEFAULT_SOURCE: self.source, **self.others},
                    store=store,
                    config=config,
                    metrics=self.metrics,
                    schedule=PACE,
                )
            )
            tasks = [
                asyncio.create_task(each)
                for each in (operator.cluster_state.run(), events.run(), config.run(interval=0.2))
            ]
            try:
                await operator.cluster_state.wait_synced(timeout=60)
                session = operator.session = LeaderSession(operator, may_write=self.leads)
                running = asyncio.create_task(session.run())
                tasks.insert(0, running)
                yield session
                assert not running.done(), running
            finally:
                for task in tasks:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)

    async def write_policy(self, name: str = "p", **spec: Any) -> None:
        body = {"metadata": {"name": name, "namespace": self.namespace}, "spec": EASY | spec}
        await self.client.apply(OPTIMIZATION_POLICIES, body, manager="test", force=True)

    async def status(self, name: str = "p") -> Object:
        found = await self.client.get(OPTIMIZATION_POLICIES, name, namespace=self.namespace)
        return dict(found.get("status") or {})

    async def until(self, true: Callable[[Object], bool], *, name: str = "p", what: str) -> Object:
        """Wait until a policy's status is so."""
        found: Object = {}
        try:
            async with asyncio.timeout(60):
                while True:
                    found = await self.status(name)
                    if true(found):
                        return found
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"never: {what}; {found}") from None

    async def wait_cycles(self, count: int = 3) -> None:
        """Wait for so many more reads of usage."""
        before = len(self.source.queries)
        await eventually(lambda: len(self.source.queries) >= before + count, what=f"{count} turns")

    @asynccontextmanager
    async def kubelet(self, of: str, **state: Any) -> AsyncIterator[None]:
        """Somebody who reports of every pod here that it runs with just what it asks for, and its last `state`.

        One of this workload does by then, and has a past: a leader who was there first would see none of it.
        """

        async def report() -> Never:
            seen: dict[str, Any] = {}
            while True:
                for pod in await self.client.list_objects(PODS, namespace=self.namespace):
                    name, wants = pod["metadata"]["name"], pod["spec"]["containers"]
                    if seen.get(name) != wants:
                        status = pod_status(pod)
                        for each in status["containerStatuses"]:
                            each["lastState"] = state
                        body = {"status": status}
                        kind = PatchType.STRATEGIC
                        with suppress(NotFound):  # it has gone since it was listed
                            await self.client.patch(
                                PODS, name, body, type=kind, namespace=self.namespace, subresource="status"
                            )
                            self.source.pods = [
                                PodContainer(self.namespace, name, each["name"]) for each in wants
                            ]
                            seen[name] = wants
                await asyncio.sleep(0.2)

        reporting = asyncio.create_task(report())
        try:
            await eventually(
                lambda: any(each.pod.startswith(f"{of}-") for each in self.source.pods), what=f"{of} runs"
            )
            yield
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)

    def sample(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"trimtab_{name}", labels)


def office(client: Client, namespace: str, folder: Path, script: Script | None = None) -> Office:
    """An office in a namespace whose workload `web` uses a fifth of a core."""
    pod = PodContainer(namespace, "web-7c9f8d6b5-x2x2x", "web")
    return Office(client, namespace, folder, ScriptedSource(script or steady(0.2, 2e8), pod))
