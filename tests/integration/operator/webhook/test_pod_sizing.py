"""Pods that a real API server creates with the effective size; no leader runs here to resize them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import yaml

from harness import process
from harness.builders.certificates import LOOPBACK, Authority
from harness.cluster.cluster import Cluster
from harness.e2e.informer_probe import eventually
from harness.e2e.leader import BRISK, deployment
from trimtab.actuation.change_annotations import AppliedSizes, ChangeAnnotations, encode_change_annotations
from trimtab.actuation.hold import HOLD_ANNOTATION
from trimtab.actuation.kube_cluster import KubeCluster
from trimtab.actuation.port import ANNOTATIONS_MANAGER
from trimtab.actuation.resources import container_sizes
from trimtab.kube.auth import load_connection
from trimtab.kube.cache.informer_set import InformerSet
from trimtab.kube.kinds.pods import Pod, Resources
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.capabilities import ServerFeatures
from trimtab.kube.rest.client import Client, Object
from trimtab.kube.rest.resources import DEPLOYMENTS, LIMIT_RANGES, OPTIMIZATION_POLICIES, PODS
from trimtab.kube.runtime.event_recorder import EventRecorder
from trimtab.operator.app import OperatorApp
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.config.reloader import ConfigReloader
from trimtab.operator.metrics import Metrics
from trimtab.operator.webhook.lifecycle import WebhookLifecycle
from trimtab.operator.webhook.registration import CONFIGURATION_NAME, MUTATING, VALIDATING
from trimtab.operator.wiring import FixedConfig, Operator, Ports, build_operator
from trimtab.store import Store

MIB = 1 << 20
SMALL = Resources(100, None, 64 * MIB, 64 * MIB)


LARGE = Resources(1000, None, 512 * MIB, 512 * MIB)
REVIEWS = "trimtab_webhook_reviews_total"


class Ward:
    """A replica that answers for pods, and a Deployment that was made smaller while its template stayed large."""

    def __init__(self, client: Client, namespace: str, folder: Path) -> None:
        self._client = client
        self._namespace = namespace
        self._port = process.free_port()
        authority = Authority(folder / "made", "theirs")
        pair = authority.issue("webhook", hosts=LOOPBACK)
        self._files = {"certificate": pair.cert, "key": pair.key, "authority": authority.cert}
        self.config = self.with_webhooks(pods=True)
        self.metrics = Metrics()
        self._source = FixedConfig(self.config)
        self.operator = self.built()
        self.catalog = self.operator.cluster_state

    def with_webhooks(self, **webhook: Any) -> OperatorConfig:
        place = {"address": f"127.0.0.1:{self._port}", "url": f"https://127.0.0.1:{self._port}"}
        files = {name: str(path) for name, path in self._files.items()}
        return OperatorConfig.model_validate({"webhook": place | {"certificateFiles": files} | webhook})

    def configure(self, config: OperatorConfig) -> None:
        self._source.current = self.config = config

    def built(self) -> Operator:
        """An operator with the current configuration; it does not lead, so that it needs no usage and no store."""
        client = self._client
        events = EventRecorder(
            client, component="trimtab.io/test", instance="test", now=lambda: datetime.now(UTC)
        )
        return build_operator(
            Ports(
                informers=InformerSet(client, discovery_interval=0.5, timeouts=BRISK),
                objects=client,
                cluster=lambda kinds: KubeCluster(client, events, kinds=kinds),
                features=ServerFeatures(client),
                events=events,
                sources={},
                store=cast("Store", None),
                config=self._source,
                metrics=self.metrics,
                webhook_client=client,
            )
        )

    def gate(self) -> WebhookLifecycle:
        gate = self.built().webhook
        assert gate is not None
        return gate

    @property
    def workload(self) -> Workload | None:
        return self.catalog.get(WorkloadKey("Deployment", self._namespace, "web"))

    @property
    def pods(self) -> list[Pod]:
        return self.catalog.list_pods(self.workload) if self.workload else []

    @property
    def asked(self) -> float:
        answered = {"webhook": "pods", "answer": "admitted"}
        return self.metrics.registry.get_sample_value(REVIEWS, answered) or 0.0

    async def begin(self) -> None:
        """One large pod is there, and the word that those to come are small."""
        await self._client.create(DEPLOYMENTS, deployment(replicas=1), namespace=self._namespace)
        await eventually(lambda: len(self.pods) == 1, what="its first pod is seen")
        assert self.workload
        applied = AppliedSizes(id="x", at=1, sizes={"web": SMALL}, template={"web": LARGE})
        annotations = encode_change_annotations(ChangeAnnotations(applied=applied), uid=self.workload.uid)
        named = {"name": "web", "namespace": self._namespace, "annotations": annotations}
        await self._client.apply(DEPLOYMENTS, {"metadata": named}, manager=ANNOTATIONS_MANAGER)
        await eventually(lambda: bool(self.workload and self.workload.annotations), what="its mark is seen")

    async def hold(self, why: str) -> None:
        named = {"name": "web", "namespace": self._namespace, "annotations": {HOLD_ANNOTATION: why}}
        await self._client.apply(DEPLOYMENTS, {"metadata": named}, manager="test")
        await eventually(
            lambda: bool(self.workload and dict(self.workload.annotations).get(HOLD_ANNOTATION)),
            what="the hold is seen",
        )

    async def order(self, mode: str, **more: Any) -> None:
        body = {"metadata": {"name": "p", "namespace": self._namespace}, "spec": {"mode": mode, **more}}
        await self._client.apply(OPTIMIZATION_POLICIES, body, manager="test", force=True)

    async def admitted_cpu(self, *, owned: bool = True, **owner: str) -> str:
        """Return the CPU that admission gives a new pod; optionally one of another owner."""
        first = self.pods[0]
        reference = {"apiVersion": "apps/v1", "controller": True} | msgspec.to_builtins(first.owner) | owner
        metadata: Object = {"generateName": "web-", "labels": {"pod-template-hash": "7b9c"}}
        metadata["ownerReferences"] = [reference] if owned else []
        body = {"metadata": metadata, "spec": deployment()["spec"]["template"]["spec"]}
        made = await self._client.create(PODS, body, namespace=self._namespace, dry_run=True)
        return str(made["spec"]["containers"][0]["resources"]["requests"]["cpu"])

    async def until_tried(self, cpu: str) -> None:
        """The API server hears of a registration, and we of a policy, in their own time."""
        async with asyncio.timeout(60):
            while await self.admitted_cpu() != cpu:
                await asyncio.sleep(0.05)


@pytest.fixture
async def ward(client: Client, kinds: None, namespace: str, tmp_path: Path) -> AsyncIterator[Ward]:
    """It is registered but does not listen yet."""
    one = Ward(client, namespace, tmp_path)
    following = asyncio.create_task(one.catalog.run())
    try:
        await one.catalog.wait_synced(60)
        await one.begin()
        await one.order("Auto")
        await one.gate().reconcile()
        yield one
    finally:
        following.cancel()
        await asyncio.wait([following])
        for resource in (VALIDATING, MUTATING):
            await client.delete(resource, CONFIGURATION_NAME)


async def test_webhook_creates_later_pods_with_the_effective_size(
    ward: Ward, client: Client, namespace: str
) -> None:
    async with AsyncExitStack() as stack:
        gate = ward.gate()
        await stack.enter_async_context(gate.serve(ward.operator.admission.build_application()))
        await gate.reconcile()
        await ward.until_tried("100m")
        await client.scale(DEPLOYMENTS, "web", 4, namespace=namespace)
        await eventually(lambda: len(ward.pods) == 4, what="it has scaled out")
        first, *later = sorted(ward.pods, key=lambda pod: pod.version)
        assert container_sizes(first.containers) == {"web": LARGE}
        assert [container_sizes(pod.containers) for pod in later] == [{"web": SMALL}] * 3

        asked = ward.asked
        assert asked >= 4
        assert await ward.admitted_cpu(owned=False) == "1", "what no controller makes is not ours"
        assert ward.asked == asked, "the webhook is not called for it"

        assert await ward.admitted_cpu(name="web-7b9c", uid="new") == "100m", (
            "of a ReplicaSet that we have not heard of"
        )
        assert await ward.admitted_cpu(name="other-7b9c", uid="new") == "1"
        assert await ward.admitted_cpu(kind="Job", name="web-7b9c", uid="new") == "1"

        floor = {
            "metadata": {"name": "floor"},
            "spec": {"limits": [{"type": "Container", "min": {"cpu": "1"}}]},
        }
        await client.create(LIMIT_RANGES, floor, namespace=namespace)
        await eventually(lambda: bool(len(ward.catalog.limit_ranges)), what="the LimitRange is seen")
        assert await ward.admitted_cpu() == "1", "it is not refused for our sake"
        await client.delete(LIMIT_RANGES, "floor", namespace=namespace)
        await ward.until_tried("100m")

        with pytest.MonkeyPatch.context() as cut_off:
            cut_off.setattr(ward.catalog, "errors_by_resource", lambda: {str(LIMIT_RANGES): "not reached"})
            assert await ward.admitted_cpu() == "1", "there may be one that we have not heard of"

        await ward.order("Recommend")
        await ward.until_tried("1")
        await ward.order("Auto")
        await ward.until_tried("100m")
        await ward.order("Auto", containers=[{"name": "w*", "controlledResources": []}])
        await ward.until_tried("1")
        await ward.order("Auto")
        await ward.until_tried("100m")
        await ward.hold("until the sale is over")
        assert await ward.admitted_cpu() == "100m", "it is held at its size, and so are the pods that come"
        await ward.order("Recommend")
        await ward.until_tried("1")
        await ward.order("Auto")
        await ward.until_tried("100m")
        ward.configure(ward.config.model_copy(update={"dry_run": True}))
        assert await ward.admitted_cpu() == "1"
    assert await ward.admitted_cpu() == "1", "and without us pods are made all the same"


async def test_webhook_answers_for_pods_without_leadership(
    ward: Ward, cluster: Cluster, tmp_path: Path
) -> None:
    """In a namespace that is not there, there is no Lease to lead by."""
    settings = ward.config.model_dump(mode="json", by_alias=True, exclude_unset=True) | {
        "namespace": "nowhere",
        "metricsSource": {"provider": "metrics-server"},
        "store": {"url": str(tmp_path / "trimtab.db")},
        "address": "127.0.0.1:0",
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    config = ConfigReloader(tmp_path / "config.yaml", environment={})
    running = asyncio.create_task(OperatorApp(load_connection(kubeconfig=cluster.kubeconfig), config).run())
    try:
        await ward.until_tried("100m")
    finally:
        running.cancel()
        await asyncio.wait([running])


@pytest.mark.parametrize("off", [{"pods": False}, {"pods": True, "enabled": False}])
async def test_webhook_gets_pod_requests_only_while_enabled(
    ward: Ward, client: Client, off: dict[str, bool]
) -> None:
    found = await client.get(MUTATING, CONFIGURATION_NAME)
    assert [each["name"] for each in found["webhooks"]] == [
        "optimizationpolicies.trimtab.io",
        "pods.trimtab.io",
    ]
    await ward.gate().reconcile()
    again = await client.get(MUTATING, CONFIGURATION_NAME)
    assert again["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"], "nothing to mend"
    ward.configure(ward.with_webhooks(**off))
    await ward.gate().reconcile()
    (left,) = (await client.get(MUTATING, CONFIGURATION_NAME))["webhooks"]
    assert left["name"] == "optimizationpolicies.trimtab.io"
