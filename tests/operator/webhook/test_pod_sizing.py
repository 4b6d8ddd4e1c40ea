"""Pods that are made with the size in effect, asked of us by the real API server; nobody leads here and resizes them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml

from harness import process
from harness.certificates import LOOPBACK, Authority
from harness.cluster import Cluster
from harness.informer_probe import eventually
from harness.leader import BRISK, deployment
from trimtab.actuation.change_annotations import Applied, Marks, write_marks
from trimtab.actuation.hold import HOLD
from trimtab.actuation.kube_cluster import MARKS_MANAGER
from trimtab.actuation.resources import sizes_of
from trimtab.kube.auth import load_connection
from trimtab.kube.cache.informer_set import Following
from trimtab.kube.kinds.pods import Pod, Resources
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.client import Client, Object
from trimtab.kube.rest.resources import DEPLOYMENTS, LIMIT_RANGES, OPTIMIZATION_POLICIES, PODS
from trimtab.operator.app import Operator
from trimtab.operator.cluster_state import Catalog
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.config.reloader import LiveConfig
from trimtab.operator.http_server import listening
from trimtab.operator.intents.intent_index import Roll
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.competing_controllers import Rivals
from trimtab.operator.webhook.lifecycle import Gate
from trimtab.operator.webhook.pod_sizing import Births
from trimtab.operator.webhook.registration import MUTATING, NAME, VALIDATING
from trimtab.operator.webhook.server import PODS as ASKED
from trimtab.operator.webhook.server import Admission

MIB = 1 << 20
LARGE = Resources(1000, None, 512 * MIB, 512 * MIB)
SMALL = Resources(100, None, 64 * MIB, 64 * MIB)
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
        self.config = self.configured(pods=True)
        following = Following(client, look_every=0.5, patience=BRISK)
        self.catalog = Catalog(following, home="trimtab-system", look_again=lambda _: None)
        rivals = Rivals(self.catalog, Roll(following), lambda: self.config)
        self._births = Births(self.catalog, rivals, lambda: self.config)
        self.metrics = Metrics()

    def configured(self, **webhook: Any) -> OperatorConfig:
        place = {"address": f"127.0.0.1:{self._port}", "url": f"https://127.0.0.1:{self._port}"}
        files = {name: str(path) for name, path in self._files.items()}
        return OperatorConfig.model_validate({"webhook": place | {"certificateFiles": files} | webhook})

    def gate(self) -> Gate:
        return Gate(self._client, self.config, now=lambda: datetime.now(UTC))

    def admission(self) -> Admission:
        return Admission(
            config=lambda: self.config,
            policies=lambda: self.catalog.policies,
            births=self._births.of,
            metrics=self.metrics,
        )

    @property
    def workload(self) -> Workload | None:
        return self.catalog.get(WorkloadKey("Deployment", self._namespace, "web"))

    @property
    def pods(self) -> list[Pod]:
        return self.catalog.pods_of(self.workload) if self.workload else []

    @property
    def asked(self) -> float:
        answered = {"webhook": "pods", "answer": "admitted"}
        return self.metrics.registry.get_sample_value(REVIEWS, answered) or 0.0

    async def begin(self) -> None:
        """One large pod is there, and the word that those to come are small."""
        await self._client.create(DEPLOYMENTS, deployment(replicas=1), namespace=self._namespace)
        await eventually(lambda: len(self.pods) == 1, what="its first pod is seen")
        assert self.workload
        applied = Applied(id="x", at=1, sizes={"web": SMALL}, template={"web": LARGE})
        marks = write_marks(Marks(applied=applied), uid=self.workload.uid)
        named = {"name": "web", "namespace": self._namespace, "annotations": marks}
        await self._client.apply(DEPLOYMENTS, {"metadata": named}, manager=MARKS_MANAGER)
        await eventually(lambda: bool(self.workload and self.workload.annotations), what="its mark is seen")

    async def hold(self, why: str) -> None:
        named = {"name": "web", "namespace": self._namespace, "annotations": {HOLD: why}}
        await self._client.apply(DEPLOYMENTS, {"metadata": named}, manager="test")
        await eventually(
            lambda: bool(self.workload and dict(self.workload.annotations).get(HOLD)), what="the hold is seen"
        )

    async def order(self, mode: str, **more: Any) -> None:
        body = {"metadata": {"name": "p", "namespace": self._namespace}, "spec": {"mode": mode, **more}}
        await self._client.apply(OPTIMIZATION_POLICIES, body, manager="test", force=True)

    async def tried(self, *, owned: bool = True, **owner: str) -> str:
        """The CPU that a pod would be made with, were it made now; by another owner where that is said."""
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
            while await self.tried() != cpu:
                await asyncio.sleep(0.05)


@pytest.fixture
async def ward(client: Client, kinds: None, namespace: str, tmp_path: Path) -> AsyncIterator[Ward]:
    """It is registered, and listens to nobody yet."""
    one = Ward(client, namespace, tmp_path)
    following = asyncio.create_task(one.catalog.run())
    try:
        await one.catalog.ready(60)
        await one.begin()
        await one.order("Auto")
        await one.gate().look()
        yield one
    finally:
        following.cancel()
        await asyncio.wait([following])
        for resource in (VALIDATING, MUTATING):
            await client.delete(resource, NAME)


async def test_pods_that_come_later_are_made_with_the_size_in_effect(
    ward: Ward, client: Client, namespace: str
) -> None:
    async with AsyncExitStack() as stack:
        gate = ward.gate()
        await stack.enter_async_context(gate.listening(ward.admission().application()))
        await gate.look()
        await ward.until_tried("100m")
        await client.scale(DEPLOYMENTS, "web", 4, namespace=namespace)
        await eventually(lambda: len(ward.pods) == 4, what="it has scaled out")
        first, *later = sorted(ward.pods, key=lambda pod: pod.version)
        assert sizes_of(first.containers) == {"web": LARGE}
        assert [sizes_of(pod.containers) for pod in later] == [{"web": SMALL}] * 3

        asked = ward.asked
        assert asked >= 4
        assert await ward.tried(owned=False) == "1", "what no controller makes is not ours"
        assert ward.asked == asked, "and nobody is asked about it"

        assert await ward.tried(name="web-7b9c", uid="new") == "100m", (
            "of a ReplicaSet that we have not heard of"
        )
        assert await ward.tried(name="other-7b9c", uid="new") == "1"
        assert await ward.tried(kind="Job", name="web-7b9c", uid="new") == "1"

        floor = {
            "metadata": {"name": "floor"},
            "spec": {"limits": [{"type": "Container", "min": {"cpu": "1"}}]},
        }
        await client.create(LIMIT_RANGES, floor, namespace=namespace)
        await eventually(lambda: bool(len(ward.catalog.limit_ranges)), what="the LimitRange is seen")
        assert await ward.tried() == "1", "it is not refused for our sake"
        await client.delete(LIMIT_RANGES, "floor", namespace=namespace)
        await ward.until_tried("100m")

        with pytest.MonkeyPatch.context() as cut_off:
            cut_off.setattr(ward.catalog, "troubles", lambda: {str(LIMIT_RANGES): "not reached"})
            assert await ward.tried() == "1", "there may be one that we have not heard of"

        await ward.order("Recommend")
        await ward.until_tried("1")
        await ward.order("Auto")
        await ward.until_tried("100m")
        await ward.order("Auto", containers=[{"name": "w*", "controlledResources": []}])
        await ward.until_tried("1")
        await ward.order("Auto")
        await ward.until_tried("100m")
        await ward.hold("until the sale is over")
        assert await ward.tried() == "100m", "it is held at its size, and so are the pods that come"
        await ward.order("Recommend")
        await ward.until_tried("1")
        await ward.order("Auto")
        await ward.until_tried("100m")
        ward.config = ward.config.model_copy(update={"dry_run": True})
        assert await ward.tried() == "1"
    assert await ward.tried() == "1", "and without us pods are made all the same"


async def test_an_operator_answers_for_pods_also_while_it_does_not_lead(
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
    config = LiveConfig(tmp_path / "config.yaml", environment={})
    running = asyncio.create_task(Operator(load_connection(kubeconfig=cluster.kubeconfig), config).run())
    try:
        await ward.until_tried("100m")
    finally:
        running.cancel()
        await asyncio.wait([running])


@pytest.mark.parametrize("off", [{"pods": False}, {"pods": True, "enabled": False}])
async def test_the_api_server_asks_about_pods_only_while_that_is_switched_on(
    ward: Ward, client: Client, off: dict[str, bool]
) -> None:
    found = await client.get(MUTATING, NAME)
    assert [each["name"] for each in found["webhooks"]] == [
        "optimizationpolicies.trimtab.io",
        "pods.trimtab.io",
    ]
    await ward.gate().look()
    again = await client.get(MUTATING, NAME)
    assert again["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"], "nothing to mend"
    ward.config = ward.configured(**off)
    await ward.gate().look()
    (left,) = (await client.get(MUTATING, NAME))["webhooks"]
    assert left["name"] == "optimizationpolicies.trimtab.io"


@pytest.mark.parametrize(
    "stated",
    [
        None,
        {},
        {"metadata": None, "spec": None},
        {"metadata": {"ownerReferences": [{"controller": True}]}, "spec": {"containers": {}}},
        {"metadata": {"ownerReferences": [{"controller": True}]}, "spec": {"containers": [None]}},
        {"spec": {"containers": [{"name": "web", "resources": {"requests": {"cpu": "a lot"}}}]}},
        {"metadata": {"ownerReferences": "me"}, "spec": {"initContainers": None}},
    ],
)
async def test_a_pod_that_makes_no_sense_to_us_is_let_in_as_it_is(stated: Object | None) -> None:
    admission = Admission(config=OperatorConfig, policies=list, births=lambda _: {"web": SMALL})
    asked = {"uid": "1", "operation": "CREATE", "object": stated}
    async with (
        listening(admission.application(), "127.0.0.1:0") as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        session.post(ASKED, data=msgspec.json.encode({"request": asked})) as answer,
    ):
        assert (await answer.json(content_type=None))["response"] == {"uid": "1", "allowed": True}
